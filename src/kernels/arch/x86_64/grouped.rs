//! The IQ types: signed weights in groups of 16 or 32, each with a small scale, and one float chain per row.
//!
//! Weights are unpacked to signed bytes, none of which is -128. `maddubs` wants one factor without a sign: that is the
//! magnitude of the activation, whose sign goes to the weight. One multiply-add with the scales of the groups turns the
//! pairs into 32-bit sums, which are exact in any order; the float steps keep the order of the definition.
//!
//! With few tokens a row is read front to back. With more, panels of eight rows are unpacked once, and eight tokens run
//! over a block of a row together: lanes = tokens.

use std::arch::x86_64::*;
use std::cell::RefCell;

use trine_formats::types::{Part, info};

use super::act::{I32x8, sum_lanes};
use super::chain::{Avx2, Avx512, Level, load8, reduce8, store8};
use super::codes::{load32, u32_at};
use crate::arch::rows::{Call, compiled_for_both};

/// Bytes of a Q8_K block.
const ACT_BYTES: usize = info::Q8_K.bytes;
/// Rows unpacked together.
const ROWS: usize = 8;
/// Tokens that run over a block together.
const TOKENS: usize = 8;

/// The float steps of a block, `d` being `dw * dx`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupStep {
    /// `d * sum`, with the scales of all groups in the sum.
    Block,
    /// `d * (sum / 8)`: as `Block`, but weights are counted in eighths of a step.
    Eighths,
    /// `(d * scale) * sum` for each 32 weights in turn.
    Each,
}

/// How a type's blocks become signed bytes with scales.
pub(super) trait GroupCodes {
    const BYTES: usize;
    const STEP: GroupStep;
    /// Last factor of the sum of a row.
    const LAST: f32;
    /// True if the stored sums of the activations take part: see `shifts`.
    const SHIFTS: bool = false;

    /// The scale of the block.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C, as for all functions of this trait. They are inlined always, and so
    /// without the features' attribute, which forbids that.
    unsafe fn scale(block: &[u8]) -> f32;

    /// Weights `32 j .. 32 j + 32` as signed bytes.
    ///
    /// # Safety
    /// As `scale`.
    unsafe fn weights(block: &[u8], j: usize) -> __m256i;

    /// The scale of each 16 weights as a signed byte.
    ///
    /// # Safety
    /// As `scale`.
    unsafe fn scales(block: &[u8]) -> __m128i;

    /// Factor of the sum of each 16 activations, i16 (`SHIFTS` only).
    ///
    /// # Safety
    /// As `scale`.
    unsafe fn shifts(_block: &[u8]) -> __m256i {
        unreachable!("only types whose points are shifted are asked for them")
    }
}

/// Buffers that keep their memory from call to call.
#[derive(Default)]
struct Scratch {
    acts: GroupActs,
    panel: GroupPanel,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Q8_K activations of one call, `[block][token]`, tokens padded with zeros to whole tiles.
#[derive(Default)]
struct GroupActs {
    /// The quants, then their magnitudes without a sign.
    q: Vec<[[I32x8; 8]; 2]>,
    sums: Vec<I32x8>,
    d: Vec<f32>,
}

/// An unpacked panel, `[block][row]`.
#[derive(Default)]
struct GroupPanel {
    /// The weights, then the scale of each 16 of them eight times as i16.
    weights: Vec<[[I32x8; 8]; 2]>,
    shifts: Vec<I32x8>,
    /// The scales of each 32 weights as floats (`Each` only).
    each: Vec<[f32; 8]>,
    d: Vec<f32>,
}

const ZEROS: [[I32x8; 8]; 2] = [[I32x8([0; 8]); 8]; 2];

impl GroupActs {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn fill<C: GroupCodes>(&mut self, acts: &[u8], blocks: usize, padded: usize) {
        // Tokens that are not there must be zeros: what a call before left behind may not be a number.
        self.q.clear();
        self.q.resize(blocks * padded, ZEROS);
        self.sums.clear();
        let sums = if C::SHIFTS { blocks * padded } else { 0 };
        self.sums.resize(sums, I32x8([0; 8]));
        self.d.clear();
        self.d.resize(blocks * padded, 0.0);
        for (t, row) in acts.chunks_exact(blocks * ACT_BYTES).enumerate() {
            for (b, block) in row.chunks_exact(ACT_BYTES).enumerate() {
                let i = b * padded + t;
                let [quants, magnitudes] = &mut self.q[i];
                for j in 0..8 {
                    let q = load32(block, const { info::Q8_K.at(Part::Codes) } + 32 * j);
                    quants[j] = I32x8::new(q);
                    magnitudes[j] = I32x8::new(_mm256_abs_epi8(q));
                }
                if C::SHIFTS {
                    self.sums[i] = I32x8::new(load32(block, const { info::Q8_K.at(Part::Sums) }));
                }
                self.d[i] = f32::from_bits(u32_at(block, 0));
            }
        }
    }
}

/// Bytes 2j and 2j + 1, each eight times as i16.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pair_of_scales(scales: __m128i, j: usize) -> __m256i {
    // A scale comes into the upper byte of its i16 and moves down with its sign.
    let which = _mm256_set_m128i(_mm_set1_epi16(2 * j as i16 + 1), _mm_set1_epi16(2 * j as i16));
    let which = _mm256_or_si256(_mm256_slli_epi16::<8>(which), _mm256_set1_epi16(0x80));
    let upper = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(scales), which);
    _mm256_srai_epi16::<8>(upper)
}

/// Products of 32 weights and activations, in pairs.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pairs(weights: __m256i, q: &[[I32x8; 8]; 2], j: usize) -> __m256i {
    // At most 2 * 127 * 128 = 32512 in magnitude, because no weight is -128: maddubs does not saturate.
    _mm256_maddubs_epi16(q[1][j].get(), _mm256_sign_epi8(weights, q[0][j].get()))
}

/// Token by token and row by row.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn by_row<C: GroupCodes, L: Level>(call: Call<'_>, scratch: &mut Scratch) {
    let blocks = call.n / 256;
    let acts = &mut scratch.acts;
    for t in 0..call.tokens {
        let act = &call.acts[t * blocks * ACT_BYTES..][..blocks * ACT_BYTES];
        let rows = call.w.chunks_exact(blocks * C::BYTES);
        // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
        unsafe {
            acts.fill::<C>(act, blocks, 1);
            for (row, out) in rows.zip(call.out[t..].iter_mut().step_by(call.tokens)) {
                let mut sum = 0.0f32;
                for (i, block) in row.chunks_exact(C::BYTES).enumerate() {
                    sum = add_block::<C, L>(sum, block, acts, i);
                }
                *out = C::LAST * sum;
            }
        }
    }
}

/// The float steps of one block and token.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn add_block<C: GroupCodes, L: Level>(mut sum: f32, block: &[u8], acts: &GroupActs, i: usize) -> f32 {
    // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
    unsafe {
        let q = &acts.q[i];
        let scales = C::scales(block);
        let d = C::scale(block) * acts.d[i];
        if C::STEP == GroupStep::Each {
            let mut sums = [_mm256_setzero_si256(); 8];
            for (j, sum) in sums.iter_mut().enumerate() {
                let pairs = pairs(C::weights(block, j), q, j);
                *sum = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            }
            let steps = _mm256_mul_ps(
                _mm256_mul_ps(_mm256_set1_ps(d), even_scales(scales)),
                _mm256_cvtepi32_ps(reduce8(&sums)),
            );
            let mut all = [0.0; 8];
            store8(&mut all, steps);
            return all.iter().fold(sum, |sum, step| sum + step);
        }
        let mut isum = _mm256_setzero_si256();
        if C::SHIFTS {
            isum = _mm256_madd_epi16(C::shifts(block), acts.sums[i].get());
        }
        for j in 0..8 {
            let pairs = pairs(C::weights(block, j), q, j);
            isum = L::madd(isum, pairs, pair_of_scales(scales, j));
        }
        let isum = sum_lanes(isum) as f32;
        sum += match C::STEP {
            GroupStep::Eighths => d * (0.125 * isum),
            _ => d * isum,
        };
        sum
    }
}

/// Bytes 0, 2, 4 .. as floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn even_scales(scales: __m128i) -> __m256 {
    let even = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, -1, -1, -1, -1, -1, -1, -1, -1);
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_shuffle_epi8(scales, even)))
}

impl GroupPanel {
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    #[inline(always)]
    unsafe fn unpack<C: GroupCodes>(&mut self, w: &[u8], rows: usize, blocks: usize) {
        self.weights.resize(rows * blocks, ZEROS);
        self.shifts.resize(rows * blocks, I32x8([0; 8]));
        self.each.resize(rows * blocks, [0.0; 8]);
        self.d.resize(rows * blocks, 0.0);
        for (r, row) in w.chunks_exact(blocks * C::BYTES).enumerate() {
            for (b, block) in row.chunks_exact(C::BYTES).enumerate() {
                let i = b * rows + r;
                // SAFETY: the caller has AVX2, FMA and F16C.
                unsafe {
                    let of_block = C::scales(block);
                    let [weights, scales] = &mut self.weights[i];
                    for j in 0..8 {
                        weights[j] = I32x8::new(C::weights(block, j));
                        scales[j] = I32x8::new(pair_of_scales(of_block, j));
                    }
                    if C::SHIFTS {
                        self.shifts[i] = I32x8::new(C::shifts(block));
                    }
                    if C::STEP == GroupStep::Each {
                        store8(&mut self.each[i], even_scales(of_block));
                    }
                    self.d[i] = C::scale(block);
                }
            }
        }
    }
}

/// Panels of rows over tiles of tokens.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn panels<C: GroupCodes, L: Level>(call: Call<'_>, scratch: &mut Scratch) {
    let Scratch { acts, panel } = scratch;
    let blocks = call.n / 256;
    let row_bytes = blocks * C::BYTES;
    let padded = call.tokens.next_multiple_of(TOKENS);
    // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
    unsafe {
        acts.fill::<C>(call.acts, blocks, padded);
        for (w, out) in call.w.chunks(ROWS * row_bytes).zip(call.out.chunks_mut(ROWS * call.tokens)) {
            let rows = w.len() / row_bytes;
            panel.unpack::<C>(w, rows, blocks);
            for first in (0..call.tokens).step_by(TOKENS) {
                let mut sums = [_mm256_setzero_ps(); ROWS];
                for b in 0..blocks {
                    for (r, sum) in sums.iter_mut().enumerate().take(rows) {
                        *sum = add_tile::<C, L>(*sum, panel, b * rows + r, acts, b * padded + first);
                    }
                }
                let tokens = TOKENS.min(call.tokens - first);
                for (r, sum) in sums.into_iter().enumerate().take(rows) {
                    let mut all = [0.0; TOKENS];
                    store8(&mut all, _mm256_mul_ps(_mm256_set1_ps(C::LAST), sum));
                    out[r * call.tokens + first..][..tokens].copy_from_slice(&all[..tokens]);
                }
            }
        }
    }
}

/// The float steps of one block of one row for the eight tokens from `x` on: lanes = tokens.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn add_tile<C: GroupCodes, L: Level>(
    mut sum: __m256,
    panel: &GroupPanel,
    w: usize,
    acts: &GroupActs,
    x: usize,
) -> __m256 {
    // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
    unsafe {
        let [weights, scales] = &panel.weights[w];
        let q = &acts.q[x..x + TOKENS];
        let d = _mm256_mul_ps(_mm256_set1_ps(panel.d[w]), load8(&acts.d[x..]));
        let mut isums = [_mm256_setzero_si256(); TOKENS];
        if C::STEP == GroupStep::Each {
            for (j, weights) in weights.iter().enumerate() {
                let weights = weights.get();
                for (isum, q) in isums.iter_mut().zip(q) {
                    *isum = _mm256_madd_epi16(pairs(weights, q, j), _mm256_set1_epi16(1));
                }
                let isum = _mm256_cvtepi32_ps(reduce8(&isums));
                let d = _mm256_mul_ps(d, _mm256_set1_ps(panel.each[w][j]));
                sum = _mm256_add_ps(sum, _mm256_mul_ps(d, isum));
            }
            return sum;
        }
        if C::SHIFTS {
            let shifts = panel.shifts[w].get();
            for (isum, sums) in isums.iter_mut().zip(&acts.sums[x..x + TOKENS]) {
                *isum = _mm256_madd_epi16(shifts, sums.get());
            }
        }
        for (j, (weights, scales)) in weights.iter().zip(scales).enumerate() {
            let (weights, scales) = (weights.get(), scales.get());
            for (isum, q) in isums.iter_mut().zip(q) {
                *isum = L::madd(*isum, pairs(weights, q, j), scales);
            }
        }
        let mut isum = _mm256_cvtepi32_ps(reduce8(&isums));
        if C::STEP == GroupStep::Eighths {
            isum = _mm256_mul_ps(_mm256_set1_ps(0.125), isum);
        }
        _mm256_add_ps(sum, _mm256_mul_ps(d, isum))
    }
}

compiled_for_both!(GroupCodes; by_row_avx2 by_row_avx512 = by_row);
compiled_for_both!(GroupCodes; panels_avx2 panels_avx512 = panels);
