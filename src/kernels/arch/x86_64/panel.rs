//! Several tokens, types with one float chain: panels of 8 or 16 rows, lanes = rows.
//!
//! A panel is unpacked once into lines: in line g, lane r holds codes `4g..4g + 4` of row r as one dword. A
//! token's dword g is broadcast against it; each lane then runs its row's own float chain.

use std::arch::x86_64::*;
use std::cell::RefCell;

use trine_formats::types::TypeId;

use super::act::{Acts, EvenOdd, I32x8, Order, vectors};
use super::chain::{group, minima, rows_avx2 as by_row_avx2, rows_avx512 as by_row_avx512, scales};
use super::codes::{
    BlockCodes, BlockStep, Iq4Nl, Mxfp4, Pq2_0, Ptq1_0, Q1_0, Q2_0, Q2K, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Tq1_0, Tq2_0,
};
use crate::arch::rows::{Call, RowKernel, row_kernels};

/// Tokens that run over a panel together: their float sums stay in the first-level cache.
const CHUNK: usize = 32;

/// 16 lanes of four codes, or two lines of 8 lanes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([I32x8; 2]);

impl Line {
    const ZERO: Line = Line([I32x8([0; 8]); 2]);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zmm(&self) -> __m512i {
        // SAFETY: a line is 64 bytes, aligned to 64.
        unsafe { _mm512_load_si512(std::ptr::from_ref(self).cast()) }
    }
}

/// One float per lane.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Lanes([f32; 16]);

impl Lanes {
    const ZERO: Lanes = Lanes([0.0; 16]);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zmm(&self) -> __m512 {
        // SAFETY: 64 bytes, aligned to 64.
        unsafe { _mm512_load_ps(self.0.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn set_zmm(&mut self, v: __m512) {
        // SAFETY: 64 bytes, aligned to 64.
        unsafe { _mm512_store_ps(self.0.as_mut_ptr(), v) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn ymm(&self) -> __m256 {
        // SAFETY: 64 bytes, aligned to 64; the first 32 are read.
        unsafe { _mm256_load_ps(self.0.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn set_ymm(&mut self, at: usize, v: __m256) {
        super::chain::store8(&mut self.0[at..at + 8], v);
    }
}

/// An unpacked panel, block by block.
#[derive(Default)]
pub(super) struct Panel {
    lines: Vec<Line>,
    scales: Vec<Lanes>,
    minima: Vec<Lanes>,
    /// `MinusMins`: eight lines of i16 pairs of minimum codes per block.
    min_lines: Vec<Line>,
}

/// 8 x 8 dwords: vector g of the result has dword g of each of the vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn transpose8(v: [__m256i; 8]) -> [__m256i; 8] {
    let pair = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (a0, a1) = pair(v[0], v[1]);
    let (b0, b1) = pair(v[2], v[3]);
    let (c0, c1) = pair(v[4], v[5]);
    let (d0, d1) = pair(v[6], v[7]);
    let pair = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let ((r0, r1), (s0, s1)) = (pair(a0, b0), pair(c0, d0));
    let ((r2, r3), (s2, s3)) = (pair(a1, b1), pair(c1, d1));
    let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
    let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
    [low(r0, s0), low(r1, s1), low(r2, s2), low(r3, s3), high(r0, s0), high(r1, s1), high(r2, s2), high(r3, s3)]
}

impl Panel {
    /// Unpacks the rows of `w`; lanes without a row repeat the last one.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn unpack<C: BlockCodes, const LANES: usize>(&mut self, w: &[u8], row_bytes: usize) {
        let blocks = row_bytes / C::BYTES;
        let rows = w.len() / row_bytes;
        let per_line = 16 / LANES;
        self.lines.resize(blocks * C::SUBS * 8 / per_line, Line::ZERO);
        self.scales.resize(blocks, Lanes::ZERO);
        self.minima.resize(blocks, Lanes::ZERO);
        if C::STEP == BlockStep::MinusMins {
            self.min_lines.resize(blocks * 8 / per_line, Line::ZERO);
        }
        // Of one block of eight rows, made once: zeros for every block would be a fortieth of a short prompt's time.
        let mut codes = [[_mm256_setzero_si256(); 8]; 8];
        for half in 0..LANES / 8 {
            let at = |lane: usize| (half * 8 + lane).min(rows - 1) * row_bytes;
            for b in 0..blocks {
                let w = &w[b * C::BYTES..];
                // SAFETY: this function has the features.
                let of_eight = unsafe { scales::<C>(w, at) };
                self.scales[b].set_ymm(half * 8, of_eight);
                if matches!(C::STEP, BlockStep::PlusOffset | BlockStep::MinusMins) {
                    // SAFETY: this function has the features.
                    let of_eight = unsafe { minima::<C>(w, at) };
                    self.minima[b].set_ymm(half * 8, of_eight);
                }
                for (lane, codes) in codes.iter_mut().enumerate() {
                    // SAFETY: this function has the features that `unpack` asks for.
                    *codes = unsafe { C::unpack(&w[at(lane)..][..C::BYTES]) };
                }
                for k in 0..C::SUBS {
                    let mut group = [_mm256_setzero_si256(); 8];
                    for (group, codes) in group.iter_mut().zip(&codes) {
                        *group = codes[k];
                    }
                    for (g, line) in transpose8(group).into_iter().enumerate() {
                        let i = (b * C::SUBS + k) * 8 + g;
                        self.lines[i / per_line].0[i % per_line + half] = I32x8::new(line);
                    }
                }
                if C::STEP == BlockStep::MinusMins {
                    let mut mins = [_mm256_setzero_si256(); 8];
                    for (lane, mins) in mins.iter_mut().enumerate() {
                        // SAFETY: this function has the features that `mins` asks for.
                        *mins = unsafe { C::mins(&w[at(lane)..][..C::BYTES]) };
                    }
                    for (g, line) in transpose8(mins).into_iter().enumerate() {
                        let i = b * 8 + g;
                        self.min_lines[i / per_line].0[i % per_line + half] = I32x8::new(line);
                    }
                }
            }
        }
    }
}

/// The sums of a chunk of tokens to their places: lane r of token i to `out[r * stride + i]`.
fn scatter(sums: &[Lanes], rows: usize, out: &mut [f32], stride: usize) {
    for (i, sums) in sums.iter().enumerate() {
        for (r, sum) in sums.0[..rows].iter().enumerate() {
            out[r * stride + i] = *sum;
        }
    }
}

/// Buffers that keep their memory from call to call.
#[derive(Default)]
struct Scratch {
    acts: Acts,
    panel: Panel,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Panels of `LANES` rows over chunks of tokens; `block(panel, acts, b, t, sums)` adds the steps of
/// block b for tokens `t..t + sums.len()`.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[inline(always)]
unsafe fn panels<C: BlockCodes, const LANES: usize>(
    call: Call<'_>,
    scratch: &mut Scratch,
    wide: bool,
    block: impl Fn(&Panel, &Acts, usize, usize, &mut [Lanes]),
) {
    let Scratch { acts, panel } = scratch;
    let units = call.n / (32 * vectors::<C>());
    let blocks = call.n / (32 * C::SUBS);
    let row_bytes = blocks * C::BYTES;
    // SAFETY: the caller has AVX2, FMA and F16C.
    unsafe { acts.fill::<C>(call.acts, units, call.tokens, Order::ByUnit, wide) };
    let mut sums = [Lanes::ZERO; CHUNK];
    for (w, out) in call.w.chunks(LANES * row_bytes).zip(call.out.chunks_mut(LANES * call.tokens)) {
        // SAFETY: the caller has AVX2, FMA and F16C.
        unsafe { panel.unpack::<C, LANES>(w, row_bytes) };
        for t in (0..call.tokens).step_by(CHUNK) {
            let sums = &mut sums[..CHUNK.min(call.tokens - t)];
            sums.fill(Lanes::ZERO);
            for b in 0..blocks {
                block(panel, acts, b, t, sums);
            }
            scatter(sums, w.len() / row_bytes, &mut out[t..], call.tokens);
        }
    }
}

/// All rows times all tokens, 16 rows at a time. `n` > 0; lengths are checked by the caller.
///
/// # Safety
/// The processor has the features named.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn rows_avx512<C: BlockCodes>(call: Call<'_>) {
    let tokens = call.tokens;
    let block = |panel: &Panel, acts: &Acts, b: usize, mut t: usize, sums: &mut [Lanes]| {
        let mut tiles = sums.chunks_exact_mut(8);
        for sums in &mut tiles {
            tile512::<C, 8>(panel, acts, b, tokens, t, sums);
            t += 8;
        }
        let mut tiles = tiles.into_remainder().chunks_exact_mut(4);
        for sums in &mut tiles {
            tile512::<C, 4>(panel, acts, b, tokens, t, sums);
            t += 4;
        }
        for sum in tiles.into_remainder().chunks_exact_mut(1) {
            tile512::<C, 1>(panel, acts, b, tokens, t, sum);
            t += 1;
        }
    };
    // SAFETY: this function has the features.
    SCRATCH.with_borrow_mut(|scratch| unsafe { panels::<C, 16>(call, scratch, false, block) })
}

/// 16 rows, `T` tokens from `t` on, one block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile512<C: BlockCodes, const T: usize>(
    panel: &Panel,
    acts: &Acts,
    b: usize,
    tokens: usize,
    t: usize,
    sums: &mut [Lanes],
) {
    let vectors = const { vectors::<C>() };
    let nested = C::SUBS / vectors;
    let sums = &mut sums[..T];
    let dw = panel.scales[b].zmm();
    let mut inner = [_mm512_setzero_ps(); T];
    for k in 0..nested {
        let unit = (b * nested + k) * tokens + t;
        let lines = &panel.lines[(b * nested + k) * vectors * 8..][..vectors * 8];
        let q = &acts.q[unit * vectors..][..T * vectors];
        let correction = &acts.correction[unit..][..T];
        let mut isum = [_mm512_setzero_si512(); T];
        for (isum, correction) in isum.iter_mut().zip(correction) {
            *isum = _mm512_set1_epi32(*correction);
        }
        for p in 0..vectors {
            for g in 0..8 {
                let line = lines[p * 8 + g].zmm();
                for i in 0..T {
                    isum[i] = _mm512_dpbusd_epi32(isum[i], line, _mm512_set1_epi32(q[i * vectors + p].0[g]));
                }
            }
        }
        let dx = &acts.d[unit..][..T];
        let sx = if C::STEP == BlockStep::PlusOffset { &acts.s[unit..][..T] } else { dx };
        for i in 0..T {
            let (isum, dx) = (_mm512_cvtepi32_ps(isum[i]), _mm512_set1_ps(dx[i]));
            let step = match C::STEP {
                BlockStep::SumFirst => _mm512_mul_ps(_mm512_mul_ps(isum, dw), dx),
                BlockStep::ScaleFirst => _mm512_mul_ps(_mm512_mul_ps(dw, dx), isum),
                BlockStep::PlusOffset => {
                    let offset = _mm512_mul_ps(panel.minima[b].zmm(), _mm512_set1_ps(sx[i]));
                    _mm512_add_ps(_mm512_mul_ps(_mm512_mul_ps(dw, dx), isum), offset)
                }
                BlockStep::MinusMins => {
                    let lines = &panel.min_lines[b * 8..][..8];
                    let mut msum = _mm512_setzero_si512();
                    for (line, pair) in lines.iter().zip(&acts.bsums[unit + i].0) {
                        msum = _mm512_dpwssd_epi32(msum, line.zmm(), _mm512_set1_epi32(*pair));
                    }
                    let minus = _mm512_mul_ps(_mm512_mul_ps(dx, panel.minima[b].zmm()), _mm512_cvtepi32_ps(msum));
                    _mm512_sub_ps(_mm512_mul_ps(_mm512_mul_ps(dx, dw), isum), minus)
                }
                BlockStep::Nested => {
                    inner[i] = _mm512_add_ps(inner[i], _mm512_mul_ps(dx, isum));
                    continue;
                }
            };
            sums[i].set_zmm(_mm512_add_ps(sums[i].zmm(), step));
        }
    }
    if C::STEP == BlockStep::Nested {
        for (sum, inner) in sums.iter_mut().zip(inner) {
            sum.set_zmm(_mm512_add_ps(sum.zmm(), _mm512_mul_ps(dw, inner)));
        }
    }
}

/// All rows times all tokens, 8 rows at a time. `n` > 0; lengths are checked by the caller.
///
/// # Safety
/// The processor has the features named.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn rows_avx2<C: BlockCodes>(call: Call<'_>) {
    let tokens = call.tokens;
    let block = |panel: &Panel, acts: &Acts, b: usize, mut t: usize, sums: &mut [Lanes]| {
        let mut tiles = sums.chunks_exact_mut(4);
        for sums in &mut tiles {
            tile256::<C, 4>(panel, acts, b, tokens, t, sums);
            t += 4;
        }
        for sum in tiles.into_remainder().chunks_exact_mut(1) {
            tile256::<C, 1>(panel, acts, b, tokens, t, sum);
            t += 1;
        }
    };
    // SAFETY: this function has the features.
    SCRATCH.with_borrow_mut(|scratch| unsafe { panels::<C, 8>(call, scratch, C::MAX > 127, block) })
}

/// 8 rows, `T` tokens from `t` on, one block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile256<C: BlockCodes, const T: usize>(
    panel: &Panel,
    acts: &Acts,
    b: usize,
    tokens: usize,
    t: usize,
    sums: &mut [Lanes],
) {
    let vectors = const { vectors::<C>() };
    let nested = C::SUBS / vectors;
    let sums = &mut sums[..T];
    let dw = panel.scales[b].ymm();
    let mut inner = [_mm256_setzero_ps(); T];
    for k in 0..nested {
        let unit = (b * nested + k) * tokens + t;
        let lines = &panel.lines[(b * nested + k) * vectors * 4..][..vectors * 4];
        let isum: [__m256i; T] = if C::MAX <= 127 {
            narrow::<C, T>(lines, &acts.q[unit * vectors..][..T * vectors])
        } else {
            wide::<T>(lines, &acts.wide[unit * vectors..][..T * vectors])
        };
        for i in 0..T {
            let isum = _mm256_add_epi32(isum[i], _mm256_set1_epi32(acts.correction[unit + i]));
            let (isum, dx) = (_mm256_cvtepi32_ps(isum), _mm256_set1_ps(acts.d[unit + i]));
            let step = match C::STEP {
                BlockStep::SumFirst => _mm256_mul_ps(_mm256_mul_ps(isum, dw), dx),
                BlockStep::ScaleFirst => _mm256_mul_ps(_mm256_mul_ps(dw, dx), isum),
                BlockStep::PlusOffset => {
                    let offset = _mm256_mul_ps(panel.minima[b].ymm(), _mm256_set1_ps(acts.s[unit + i]));
                    _mm256_add_ps(_mm256_mul_ps(_mm256_mul_ps(dw, dx), isum), offset)
                }
                BlockStep::MinusMins => {
                    let lines = &panel.min_lines[b * 4..][..4];
                    let mut msum = _mm256_setzero_si256();
                    for (j, pair) in acts.bsums[unit + i].0.iter().enumerate() {
                        let line = lines[j / 2].0[j % 2].get();
                        msum = _mm256_add_epi32(msum, _mm256_madd_epi16(line, _mm256_set1_epi32(*pair)));
                    }
                    let minus = _mm256_mul_ps(_mm256_mul_ps(dx, panel.minima[b].ymm()), _mm256_cvtepi32_ps(msum));
                    _mm256_sub_ps(_mm256_mul_ps(_mm256_mul_ps(dx, dw), isum), minus)
                }
                BlockStep::Nested => {
                    inner[i] = _mm256_add_ps(inner[i], _mm256_mul_ps(dx, isum));
                    continue;
                }
            };
            sums[i].set_ymm(0, _mm256_add_ps(sums[i].ymm(), step));
        }
    }
    if C::STEP == BlockStep::Nested {
        for (sum, inner) in sums.iter_mut().zip(inner) {
            sum.set_ymm(0, _mm256_add_ps(sum.ymm(), _mm256_mul_ps(dw, inner)));
        }
    }
}

/// [`group`] rounded down to a divisor of the eight lines of a vector.
const fn lines_in_group<C: BlockCodes>() -> usize {
    match group::<C>() {
        0 | 1 => 1,
        2 | 3 => 2,
        4..8 => 4,
        _ => 8,
    }
}

/// Codes up to 127: maddubs, added up in i16 as long as they fit.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn narrow<C: BlockCodes, const T: usize>(lines: &[Line], q: &[I32x8]) -> [__m256i; T] {
    let vectors = q.len() / T;
    // Each result is at most 2 * MAX * 128 <= 32512: maddubs does not saturate, nor do `group` of them.
    let group = const { lines_in_group::<C>() };
    let ones = _mm256_set1_epi16(1);
    let mut isum = [_mm256_setzero_si256(); T];
    for p in 0..vectors {
        for first in (0..8).step_by(group) {
            let mut pairs = [_mm256_setzero_si256(); T];
            for g in first..first + group {
                let line = lines[p * 4 + g / 2].0[g % 2].get();
                for i in 0..T {
                    let q = _mm256_set1_epi32(q[i * vectors + p].0[g]);
                    pairs[i] = _mm256_add_epi16(pairs[i], _mm256_maddubs_epi16(line, q));
                }
            }
            for i in 0..T {
                isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(pairs[i], ones));
            }
        }
    }
    isum
}

/// Codes up to 255: both sides as i16, even and odd bytes apart.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn wide<const T: usize>(lines: &[Line], q: &[EvenOdd]) -> [__m256i; T] {
    let vectors = q.len() / T;
    let low = _mm256_set1_epi16(0xFF);
    let mut isum = [_mm256_setzero_si256(); T];
    for p in 0..vectors {
        for g in 0..8 {
            let line = lines[p * 4 + g / 2].0[g % 2].get();
            let (even, odd) = (_mm256_and_si256(line, low), _mm256_srli_epi16::<8>(line));
            for i in 0..T {
                let [q_even, q_odd] = &q[i * vectors + p].0;
                isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(even, _mm256_set1_epi32(q_even[g])));
                isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(odd, _mm256_set1_epi32(q_odd[g])));
            }
        }
    }
    isum
}

pub(super) static ROW_KERNELS: &[RowKernel] = row_kernels![
    8 by_row_avx2 rows_avx2, 16 by_row_avx512 rows_avx512;
    Q8_0 Q8_0, Q4_0 Q4_0, Q4_1 Q4_1, Q5_0 Q5_0, Q5_1 Q5_1, IQ4_NL Iq4Nl, MXFP4 Mxfp4, Q1_0 Q1_0, Q2_0 Q2_0,
    PQ2_0 Pq2_0, Q2_0_G128 Pq2_0, PTQ1_0 Ptq1_0, TQ1_0 Tq1_0, TQ2_0 Tq2_0, Q2_K Q2K
];
