//! Q3_K, Q4_K, Q5_K, Q6_K: eight float chains per row, lane l for the elements that are l mod 8.
//!
//! Codes and activations are permuted alike, so that dword l of group J holds elements `32J + l + 8i`, i = 0..4.
//! One maddubs gives each lane its two pair sums, which belong to scales 2J and 2J + 1; one multiply-add with the
//! pair of scales adds them to the lane's integer. No sum crosses lanes before the very end of the row.

use std::arch::x86_64::*;
use std::cell::RefCell;

use trine_formats::types::{Part, TypeId, info};

use super::act::{I32x8, f16_at};
use super::chain::{Avx2, Avx512, Level, load8, reduce8, store8};
use super::codes::{load16, load32, u32_at};
use crate::arch::rows::{Call, RowKernel, compiled_for_both, row_kernels};

/// Bytes of a Q8_K block.
const ACT_BYTES: usize = info::Q8_K.bytes;
/// Rows unpacked together.
const ROWS: usize = 8;
/// Tokens that run over a panel together; with the rows' codes they stay in the first-level cache.
const CHUNK: usize = 16;

/// One unpacked block.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Permuted codes: a weight is `code - OFFSET`.
    codes: [__m256i; 8],
    /// Dword J: scales 2J and 2J + 1 as i16.
    scales: __m256i,
    /// Dword J: minimum J twice as i16.
    mins: __m256i,
}

/// How a type's blocks become permuted byte codes.
pub(super) trait LaneCodes {
    const BYTES: usize;
    /// Difference of a code and its weight; at most 64.
    const OFFSET: i32;
    /// True if blocks have minima (and an f16 scale for them).
    const MINS: bool;
    /// Byte offset of the f16 scale.
    const SCALE_AT: usize;

    /// Always inlined, and so without the features' attribute, which forbids that: a call would hand 17 vectors over in
    /// memory, which was seen to halve the speed of a product.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn unpack(block: &[u8]) -> Block;
}

/// Dword l of the result: bytes l, l + 8, l + 16, l + 24.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn permute(v: __m256i) -> __m256i {
    static HALVES: I32x8 = I32x8([0, 2, 4, 6, 1, 3, 5, 7]);
    // The compiler must not know the indices: it would merge the two shuffles into four instructions.
    // SAFETY: a vector is 32 bytes, aligned to 32, and `HALVES` is one.
    let halves = unsafe { std::ptr::read_volatile((&raw const HALVES).cast::<__m256i>()) };
    let columns = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(v, halves), _mm256_broadcastsi128_si256(columns))
}

/// Eight bytes, each twice as i16.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn twice(bytes: u64) -> __m256i {
    let v = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes.cast_signed()));
    _mm256_or_si256(v, _mm256_slli_epi32::<16>(v))
}

#[inline]
fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Where Q4_K and Q5_K have their header: the minima's scale, and scales and minima of the groups.
const DMIN: usize = info::Q4_K.at(Part::Min);
const HEADER_SCALES: usize = info::Q4_K.at(Part::GroupScales);
const _: () = assert!(info::Q5_K.at(Part::Min) == DMIN && info::Q5_K.at(Part::GroupScales) == HEADER_SCALES);

/// The eight 6-bit scales and eight 6-bit minima of Q4_K and Q5_K.
#[inline(always)]
fn scales_and_mins(b: &[u8]) -> (u64, u64) {
    let at = HEADER_SCALES;
    let (a, b, c) = (u32_at(b, at), u32_at(b, at + 4), u32_at(b, at + 8));
    let upper = |v: u32| (v >> 6 & 0x0303_0303) << 4;
    let scales = join(a & 0x3F3F_3F3F, c & 0x0F0F_0F0F | upper(a));
    let mins = join(b & 0x3F3F_3F3F, c >> 4 & 0x0F0F_0F0F | upper(b));
    (scales, mins)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn low_nibbles(v: __m256i) -> __m256i {
    _mm256_and_si256(v, _mm256_set1_epi8(15))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn high_nibbles(v: __m256i) -> __m256i {
    low_nibbles(_mm256_srli_epi16::<4>(v))
}

pub(super) struct Q4K;
pub(super) struct Q5K;
pub(super) struct Q6K;
pub(super) struct Q3K;

impl LaneCodes for Q4K {
    const BYTES: usize = info::Q4_K.bytes;
    const OFFSET: i32 = 0;
    const MINS: bool = true;
    const SCALE_AT: usize = info::Q4_K.at(Part::Scale);

    #[inline(always)]
    unsafe fn unpack(b: &[u8]) -> Block {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe {
            let (scales, mins) = scales_and_mins(b);
            let mut codes = [_mm256_setzero_si256(); 8];
            for p in 0..4 {
                let q = permute(load32(b, const { info::Q4_K.at(Part::Codes) } + 32 * p));
                codes[2 * p] = low_nibbles(q);
                codes[2 * p + 1] = high_nibbles(q);
            }
            Block { codes, scales: twice(scales), mins: twice(mins) }
        }
    }
}

impl LaneCodes for Q5K {
    const BYTES: usize = info::Q5_K.bytes;
    const OFFSET: i32 = 0;
    const MINS: bool = true;
    const SCALE_AT: usize = info::Q5_K.at(Part::Scale);

    #[inline(always)]
    unsafe fn unpack(b: &[u8]) -> Block {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe {
            let (scales, mins) = scales_and_mins(b);
            let mut fifth = permute(load32(b, const { info::Q5_K.at(Part::HighBits) }));
            let mut codes = [_mm256_setzero_si256(); 8];
            for p in 0..4 {
                let q = permute(load32(b, const { info::Q5_K.at(Part::Codes) } + 32 * p));
                // Bits 2p and 2p + 1 are the fifth bits of groups 2p and 2p + 1; they are bits 0 and 1 by now.
                let first = _mm256_and_si256(_mm256_slli_epi16::<4>(fifth), _mm256_set1_epi8(16));
                let second = _mm256_and_si256(_mm256_slli_epi16::<3>(fifth), _mm256_set1_epi8(16));
                codes[2 * p] = _mm256_or_si256(low_nibbles(q), first);
                codes[2 * p + 1] = _mm256_or_si256(high_nibbles(q), second);
                fifth = _mm256_srli_epi16::<2>(fifth);
            }
            Block { codes, scales: twice(scales), mins: twice(mins) }
        }
    }
}

impl LaneCodes for Q6K {
    const BYTES: usize = info::Q6_K.bytes;
    const OFFSET: i32 = 32;
    const MINS: bool = false;
    const SCALE_AT: usize = info::Q6_K.at(Part::Scale);

    #[inline(always)]
    unsafe fn unpack(b: &[u8]) -> Block {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe {
            let upper = _mm256_set1_epi8(0x30);
            let mut codes = [_mm256_setzero_si256(); 8];
            for half in 0..2 {
                let first = permute(load32(b, 64 * half));
                let second = permute(load32(b, 64 * half + 32));
                let h = permute(load32(b, const { info::Q6_K.at(Part::HighBits) } + 32 * half));
                let bits = [_mm256_slli_epi16::<4>(h), _mm256_slli_epi16::<2>(h), h, _mm256_srli_epi16::<2>(h)];
                let low = [low_nibbles(first), low_nibbles(second), high_nibbles(first), high_nibbles(second)];
                for (j, (low, bits)) in low.into_iter().zip(bits).enumerate() {
                    codes[4 * half + j] = _mm256_or_si256(low, _mm256_and_si256(bits, upper));
                }
            }
            let scales = _mm256_cvtepi8_epi16(load16(b, const { info::Q6_K.at(Part::GroupScales) }));
            Block { codes, scales, mins: _mm256_setzero_si256() }
        }
    }
}

impl LaneCodes for Q3K {
    const BYTES: usize = info::Q3_K.bytes;
    const OFFSET: i32 = 4;
    const MINS: bool = false;
    const SCALE_AT: usize = info::Q3_K.at(Part::Scale);

    #[inline(always)]
    unsafe fn unpack(b: &[u8]) -> Block {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe {
            let (three, four) = (_mm256_set1_epi8(3), _mm256_set1_epi8(4));
            let h = permute(load32(b, 0));
            // Bit J of a byte is the third bit of group J.
            let third = [
                _mm256_slli_epi16::<2>(h),
                _mm256_slli_epi16::<1>(h),
                h,
                _mm256_srli_epi16::<1>(h),
                _mm256_srli_epi16::<2>(h),
                _mm256_srli_epi16::<3>(h),
                _mm256_srli_epi16::<4>(h),
                _mm256_srli_epi16::<5>(h),
            ];
            const CODES: usize = info::Q3_K.at(Part::Codes);
            let (q0, q1) = (permute(load32(b, CODES)), permute(load32(b, CODES + 32)));
            let low = [
                q0,
                _mm256_srli_epi16::<2>(q0),
                _mm256_srli_epi16::<4>(q0),
                _mm256_srli_epi16::<6>(q0),
                q1,
                _mm256_srli_epi16::<2>(q1),
                _mm256_srli_epi16::<4>(q1),
                _mm256_srli_epi16::<6>(q1),
            ];
            let mut codes = [_mm256_setzero_si256(); 8];
            for (code, (low, third)) in codes.iter_mut().zip(low.into_iter().zip(third)) {
                *code = _mm256_or_si256(_mm256_and_si256(low, three), _mm256_and_si256(third, four));
            }
            // 16 scales of 6 bits: four low bits in two dwords of nibbles, two high bits in the third.
            const SCALES: usize = info::Q3_K.at(Part::GroupScales);
            let (s0, s1, s2) = (u32_at(b, SCALES), u32_at(b, SCALES + 4), u32_at(b, SCALES + 8));
            let scale = |low: u32, high: u32| (low & 0x0F0F_0F0F) | (high & 0x0303_0303) << 4;
            let first = join(scale(s0, s2), scale(s1, s2 >> 2));
            let second = join(scale(s0 >> 4, s2 >> 4), scale(s1 >> 4, s2 >> 6));
            let bytes = _mm_set_epi64x(second.cast_signed(), first.cast_signed());
            let scales = _mm256_sub_epi16(_mm256_cvtepu8_epi16(bytes), _mm256_set1_epi16(32));
            Block { codes, scales, mins: _mm256_setzero_si256() }
        }
    }
}

/// Buffers that keep their memory from call to call.
#[derive(Default)]
struct Scratch {
    acts: LaneActs,
    panel: LanePanel,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Q8_K activations of one call, `[block][token]`, tokens padded with zeros to a multiple of eight.
#[derive(Default)]
struct LaneActs {
    q: Vec<[I32x8; 8]>,
    /// `OFFSET` times the pair sums, as i16.
    correction: Vec<[I32x8; 8]>,
    bsums: Vec<I32x8>,
    d: Vec<f32>,
}

/// An unpacked panel, `[block][row]`.
#[derive(Default)]
struct LanePanel {
    /// The codes, then each pair of scales in all lanes.
    codes: Vec<[[I32x8; 8]; 2]>,
    mins: Vec<I32x8>,
    d: Vec<[f32; 2]>,
}

const ZEROS: [I32x8; 8] = [I32x8([0; 8]); 8];

impl LaneActs {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn fill<C: LaneCodes>(&mut self, acts: &[u8], blocks: usize, padded: usize) {
        let tokens = acts.len() / (blocks * ACT_BYTES);
        self.q.resize(blocks * padded, ZEROS);
        self.correction.resize(if C::OFFSET != 0 { blocks * padded } else { 0 }, ZEROS);
        self.bsums.resize(if C::MINS { blocks * padded } else { 0 }, I32x8([0; 8]));
        self.d.resize(blocks * padded, 0.0);
        for (t, row) in acts.chunks_exact(blocks * ACT_BYTES).enumerate().take(tokens) {
            for (b, block) in row.chunks_exact(ACT_BYTES).enumerate() {
                let i = b * padded + t;
                for j in 0..8 {
                    let q = permute(load32(block, const { info::Q8_K.at(Part::Codes) } + 32 * j));
                    self.q[i][j] = I32x8::new(q);
                    if C::OFFSET != 0 {
                        let offset = _mm256_set1_epi8(C::OFFSET as i8);
                        self.correction[i][j] = I32x8::new(_mm256_maddubs_epi16(offset, q));
                    }
                }
                if C::MINS {
                    self.bsums[i] = I32x8::new(load32(block, const { info::Q8_K.at(Part::Sums) }));
                }
                self.d[i] = f32::from_bits(u32_at(block, 0));
            }
        }
    }
}

/// Broadcasts each dword of `v`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn spread(v: __m256i) -> [__m256i; 8] {
    let mut all = [v; 8];
    for (v, dword) in all.iter_mut().zip(I32x8::new(v).0) {
        *v = _mm256_set1_epi32(dword);
    }
    all
}

/// The lanes' integers of one block and token.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn lane_sums<C: LaneCodes, L: Level>(
    codes: &[__m256i; 8],
    scales: impl Fn(usize) -> __m256i,
    acts: &LaneActs,
    i: usize,
) -> __m256i {
    // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
    unsafe {
        let q = &acts.q[i];
        let mut sum = _mm256_setzero_si256();
        for j in 0..8 {
            // At most 63 * 128 * 2 = 16128 in magnitude: maddubs does not saturate.
            let mut pairs = _mm256_maddubs_epi16(codes[j], q[j].get());
            if C::OFFSET != 0 {
                pairs = _mm256_sub_epi16(pairs, acts.correction[i][j].get());
            }
            sum = L::madd(sum, pairs, scales(j));
        }
        sum
    }
}

/// Token by token and row by row.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn by_row<C: LaneCodes, L: Level>(call: Call<'_>, scratch: &mut Scratch) {
    let blocks = call.n / 256;
    let acts = &mut scratch.acts;
    for t in 0..call.tokens {
        let act = &call.acts[t * blocks * ACT_BYTES..][..blocks * ACT_BYTES];
        let rows = call.w.chunks_exact(blocks * C::BYTES);
        // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
        unsafe {
            acts.fill::<C>(act, blocks, 1);
            for (row, out) in rows.zip(call.out[t..].iter_mut().step_by(call.tokens)) {
                let mut lanes = _mm256_setzero_ps();
                let mut minus = 0.0f32;
                for (i, b) in row.chunks_exact(C::BYTES).enumerate() {
                    let block = C::unpack(b);
                    let scales = spread(block.scales);
                    let sums = lane_sums::<C, L>(&block.codes, |j| scales[j], acts, i);
                    let dx = acts.d[i];
                    let d = _mm256_set1_ps(f16_at(b, C::SCALE_AT) * dx);
                    lanes = _mm256_add_ps(lanes, _mm256_mul_ps(d, _mm256_cvtepi32_ps(sums)));
                    if C::MINS {
                        let sums = _mm256_madd_epi16(block.mins, acts.bsums[i].get());
                        minus -= (f16_at(b, DMIN) * dx) * super::act::sum_lanes(sums) as f32;
                    }
                }
                *out = add_lanes(minus, lanes);
            }
        }
    }
}

/// `start + lane 0 + lane 1 ...`, in this order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_lanes(start: f32, lanes: __m256) -> f32 {
    let mut all = [0.0; 8];
    store8(&mut all, lanes);
    all.iter().fold(start, |acc, lane| acc + lane)
}

impl LanePanel {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn unpack<C: LaneCodes>(&mut self, w: &[u8], rows: usize, blocks: usize) {
        self.codes.resize(rows * blocks, [ZEROS; 2]);
        self.mins.resize(rows * blocks, I32x8([0; 8]));
        self.d.resize(rows * blocks, [0.0; 2]);
        for (r, row) in w.chunks_exact(blocks * C::BYTES).enumerate() {
            for (b, bytes) in row.chunks_exact(C::BYTES).enumerate() {
                let i = b * rows + r;
                // SAFETY: this function has the features that `unpack` asks for.
                let block = unsafe { C::unpack(bytes) };
                let scales = spread(block.scales);
                let [codes_to, scales_to] = &mut self.codes[i];
                for j in 0..8 {
                    codes_to[j] = I32x8::new(block.codes[j]);
                    scales_to[j] = I32x8::new(scales[j]);
                }
                self.mins[i] = I32x8::new(block.mins);
                self.d[i] = [f16_at(bytes, C::SCALE_AT), if C::MINS { f16_at(bytes, DMIN) } else { 0.0 }];
            }
        }
    }
}

/// Panels of rows over chunks of tokens.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn panels<C: LaneCodes, L: Level>(call: Call<'_>, scratch: &mut Scratch) {
    let Scratch { acts, panel } = scratch;
    let blocks = call.n / 256;
    let row_bytes = blocks * C::BYTES;
    let padded = call.tokens.next_multiple_of(8);
    // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
    unsafe {
        acts.fill::<C>(call.acts, blocks, padded);
        for (w, out) in call.w.chunks(ROWS * row_bytes).zip(call.out.chunks_mut(ROWS * call.tokens)) {
            let rows = w.len() / row_bytes;
            panel.unpack::<C>(w, rows, blocks);
            for first in (0..call.tokens).step_by(CHUNK) {
                let tokens = CHUNK.min(call.tokens - first);
                let mut lanes = [[I32x8([0; 8]); CHUNK]; ROWS];
                let mut minus = [[0.0f32; CHUNK]; ROWS];
                for b in 0..blocks {
                    for r in 0..rows {
                        let w = b * rows + r;
                        let x = b * padded + first;
                        add_block::<C, L>(panel, w, acts, x, &mut lanes[r][..tokens]);
                        if C::MINS {
                            for t in (0..tokens).step_by(8) {
                                subtract_mins(panel, w, acts, x + t, &mut minus[r][t..]);
                            }
                        }
                    }
                }
                for (r, (lanes, minus)) in lanes.iter().zip(&minus).take(rows).enumerate() {
                    for t in 0..tokens {
                        let lanes = _mm256_castsi256_ps(lanes[t].get());
                        out[r * call.tokens + first + t] = add_lanes(minus[t], lanes);
                    }
                }
            }
        }
    }
}

/// One block of one row, for the tokens from `x` on.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn add_block<C: LaneCodes, L: Level>(
    panel: &LanePanel,
    w: usize,
    acts: &LaneActs,
    x: usize,
    lanes: &mut [I32x8],
) {
    // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
    unsafe {
        let [codes, scales] = &panel.codes[w];
        let mut held = [_mm256_setzero_si256(); 8];
        for (held, codes) in held.iter_mut().zip(codes) {
            *held = codes.get();
        }
        let dw = _mm256_set1_ps(panel.d[w][0]);
        for (t, lanes) in lanes.iter_mut().enumerate() {
            let sums = lane_sums::<C, L>(&held, |j| scales[j].get(), acts, x + t);
            let d = _mm256_mul_ps(dw, _mm256_set1_ps(acts.d[x + t]));
            let step = _mm256_mul_ps(d, _mm256_cvtepi32_ps(sums));
            let sum = _mm256_add_ps(_mm256_castsi256_ps(lanes.get()), step);
            *lanes = I32x8::new(_mm256_castps_si256(sum));
        }
    }
}

/// The minima of one block of one row, for eight tokens: lanes = tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn subtract_mins(panel: &LanePanel, w: usize, acts: &LaneActs, x: usize, minus: &mut [f32]) {
    let mins = panel.mins[w].get();
    let mut sums = [_mm256_setzero_si256(); 8];
    for (sum, bsums) in sums.iter_mut().zip(&acts.bsums[x..x + 8]) {
        *sum = _mm256_madd_epi16(mins, bsums.get());
    }
    // SAFETY: this function has the features.
    let sums = _mm256_cvtepi32_ps(unsafe { reduce8(&sums) });
    let d = _mm256_mul_ps(_mm256_set1_ps(panel.d[w][1]), load8(&acts.d[x..]));
    store8(minus, _mm256_sub_ps(load8(minus), _mm256_mul_ps(d, sums)));
}

compiled_for_both!(LaneCodes; by_row_avx2 by_row_avx512 = by_row);
compiled_for_both!(LaneCodes; panels_avx2 panels_avx512 = panels);

pub(super) static ROW_KERNELS: &[RowKernel] = row_kernels![
    1 by_row_avx2 panels_avx2, 1 by_row_avx512 panels_avx512;
    Q3_K Q3K, Q4_K Q4K, Q5_K Q5K, Q6_K Q6K
];
