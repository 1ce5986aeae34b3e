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
use super::codes::{load32, u32_at};
use super::lane_codes::{DMIN, LaneCodes, Q3K, Q4K, Q5K, Q6K, permute};
use crate::arch::rows::{Call, RowKernel, compiled_for_both, row_kernels};

/// Bytes of a Q8_K block.
const ACT_BYTES: usize = info::Q8_K.bytes;
/// Rows unpacked together.
const ROWS: usize = 8;
/// Tokens that run over a panel together; with the rows' codes they stay in the first-level cache.
const CHUNK: usize = 16;

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
