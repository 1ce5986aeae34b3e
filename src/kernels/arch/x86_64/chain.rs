//! Few tokens, types with one float chain: rows are read front to back, as one flat list of blocks.
//!
//! Eight consecutive units (of any rows) give eight vectors of partial sums; a tree of integer adds
//! turns them into one vector of eight sums, and the block step runs with lanes = units. Its products
//! are buffered for eight rows; then eight scalar chains add them up in order. So memory is read
//! strictly in sequence and no chain waits for another.

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::act::{Acts, I32x8, Order, f16_at, vectors};
use super::codes::{BlockCodes, BlockStep};
use crate::arch::rows::{Call, compiled_for_both};

/// Rows whose products are buffered together: as many independent chains.
const ROWS: usize = 8;

/// Operations that differ between the instruction sets in row-major kernels.
pub(super) trait Level {
    /// Eight partial sums of `codes * q` over the vectors.
    ///
    /// # Safety
    /// The processor has the level's features.
    unsafe fn dot<C: BlockCodes>(codes: &[__m256i], q: &[I32x8]) -> __m256i;

    /// `acc + a0 * b0 + a1 * b1` for the i16 pairs of each dword.
    ///
    /// # Safety
    /// The processor has the level's features.
    unsafe fn madd(acc: __m256i, a: __m256i, b: __m256i) -> __m256i;
}

pub(super) struct Avx2;
pub(super) struct Avx512;

impl Level for Avx2 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn dot<C: BlockCodes>(codes: &[__m256i], q: &[I32x8]) -> __m256i {
        let mut sum = _mm256_setzero_si256();
        if C::MAX <= 127 {
            // A pair is at most 2 * MAX * 128 <= 32512 in magnitude, so maddubs does not saturate, and
            // `group` pairs stay within i16.
            let group = const { group::<C>() };
            for (codes, q) in codes.chunks(group).zip(q.chunks(group)) {
                let mut pairs = _mm256_maddubs_epi16(codes[0], q[0].get());
                for (c, q) in codes[1..].iter().zip(&q[1..]) {
                    pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(*c, q.get()));
                }
                sum = Self::add_pairs(sum, pairs, _mm256_set1_epi16(1));
            }
        } else {
            // Bytes beyond 127 would saturate maddubs: widen both sides.
            for (c, q) in codes.iter().zip(q) {
                let q = q.get();
                let c_lo = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(*c));
                let c_hi = _mm256_cvtepu8_epi16(_mm256_extracti128_si256::<1>(*c));
                let q_lo = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q));
                let q_hi = _mm256_cvtepi8_epi16(_mm256_extracti128_si256::<1>(q));
                sum = Self::add_pairs(sum, c_lo, q_lo);
                sum = Self::add_pairs(sum, c_hi, q_hi);
            }
        }
        sum
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn madd(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        Self::add_pairs(acc, a, b)
    }
}

impl Avx2 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add_pairs(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))
    }
}

impl Level for Avx512 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn dot<C: BlockCodes>(codes: &[__m256i], q: &[I32x8]) -> __m256i {
        // dpbusd does not saturate.
        let mut sum = [_mm256_setzero_si256(); 2];
        for (i, (c, q)) in codes.iter().zip(q).enumerate() {
            sum[i % 2] = _mm256_dpbusd_epi32(sum[i % 2], *c, q.get());
        }
        if codes.len() > 1 { _mm256_add_epi32(sum[0], sum[1]) } else { sum[0] }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn madd(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        _mm256_dpwssd_epi32(acc, a, b)
    }
}

/// How many maddubs results of a type may be added in i16: each is at most `2 * MAX * 128`.
pub(super) const fn group<C: BlockCodes>() -> usize {
    32767 / (C::MAX as usize * 256)
}

/// Lane j = the sum of the lanes of `v[j]`.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[inline(always)]
pub(super) unsafe fn reduce8(v: &[__m256i; 8]) -> __m256i {
    // SAFETY: the caller has the features.
    unsafe {
        let quarter =
            |i: usize| _mm256_hadd_epi32(_mm256_hadd_epi32(v[i], v[i + 1]), _mm256_hadd_epi32(v[i + 2], v[i + 3]));
        let (low, high) = (quarter(0), quarter(4));
        _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high))
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load8(x: &[f32]) -> __m256 {
    let x = &x[..8];
    // SAFETY: `x` has 8 floats; the load asks for no alignment.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store8(x: &mut [f32], v: __m256) {
    let x = &mut x[..8];
    // SAFETY: `x` has 8 floats; the store asks for no alignment.
    unsafe { _mm256_storeu_ps(x.as_mut_ptr(), v) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load8i(x: &[i32]) -> __m256i {
    let x = &x[..8];
    // SAFETY: `x` has 8 integers; the load asks for no alignment.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

/// `f(0) .. f(7)` as f32, from f16 bits.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[inline(always)]
unsafe fn halves(f: impl Fn(usize) -> u16) -> __m256 {
    let h = |j: usize| f(j).cast_signed();
    let bits = [h(0), h(1), h(2), h(3), h(4), h(5), h(6), h(7)];
    let [a, b, c, d, e, f, g, h] = bits;
    // SAFETY: the caller has the features.
    unsafe { _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, e, f, g, h)) }
}

/// Half of 2^(e - 127) as f32 bits: MXFP4's values are stored doubled.
#[inline]
fn e8m0_half(e: u8) -> u32 {
    if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 }
}

/// The scales of eight blocks, at `at(0) .. at(7)` in `b`.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[inline(always)]
pub(super) unsafe fn scales<C: BlockCodes>(b: &[u8], at: impl Fn(usize) -> usize) -> __m256 {
    // SAFETY: the caller has the features.
    unsafe {
        if C::E8M0 {
            let f = |j: usize| e8m0_half(b[at(j) + C::SCALE_AT]).cast_signed();
            return _mm256_castsi256_ps(_mm256_setr_epi32(f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)));
        }
        halves(|j| u16_at(b, at(j) + C::SCALE_AT))
    }
}

/// The minima of eight blocks.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[inline(always)]
pub(super) unsafe fn minima<C: BlockCodes>(b: &[u8], at: impl Fn(usize) -> usize) -> __m256 {
    // SAFETY: the caller has the features.
    unsafe { halves(|j| u16_at(b, at(j) + C::MIN_AT)) }
}

#[inline(always)]
fn u16_at(b: &[u8], at: usize) -> u16 {
    let b = &b[at..at + 2];
    u16::from_le_bytes([b[0], b[1]])
}

/// One group of eight units that start at unit `first` of a row: their block steps, without the add.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn terms<C: BlockCodes, L: Level>(blocks: &[u8], acts: &Acts, first: usize) -> __m256 {
    // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
    unsafe {
        let vectors = const { vectors::<C>() };
        let nested = C::SUBS / vectors; // units in a block
        let q = &acts.q[first * vectors..][..8 * vectors];
        let mut sums = [_mm256_setzero_si256(); 8];
        for (j, sums) in sums.chunks_exact_mut(nested).enumerate() {
            let codes = C::unpack(&blocks[j * C::BYTES..][..C::BYTES]);
            for (k, sum) in sums.iter_mut().enumerate() {
                let q = &q[(j * nested + k) * vectors..][..vectors];
                *sum = L::dot::<C>(&codes[k * vectors..][..vectors], q);
            }
        }
        let isum = _mm256_add_epi32(reduce8(&sums), load8i(&acts.correction[first..]));
        let isum = _mm256_cvtepi32_ps(isum);
        let dx = load8(&acts.d[first..]);
        if C::STEP == BlockStep::Nested {
            return _mm256_mul_ps(dx, isum);
        }
        let dw = scales::<C>(blocks, |j| j * C::BYTES);
        match C::STEP {
            BlockStep::SumFirst => _mm256_mul_ps(_mm256_mul_ps(isum, dw), dx),
            BlockStep::ScaleFirst | BlockStep::Nested => _mm256_mul_ps(_mm256_mul_ps(dw, dx), isum),
            BlockStep::PlusOffset => {
                let offset = _mm256_mul_ps(minima::<C>(blocks, |j| j * C::BYTES), load8(&acts.s[first..]));
                _mm256_add_ps(_mm256_mul_ps(_mm256_mul_ps(dw, dx), isum), offset)
            }
            BlockStep::MinusMins => {
                let mut sums = [_mm256_setzero_si256(); 8];
                for (j, sum) in sums.iter_mut().enumerate() {
                    let mins = C::mins(&blocks[j * C::BYTES..][..C::BYTES]);
                    *sum = _mm256_madd_epi16(mins, acts.bsums[first + j].get());
                }
                let msum = _mm256_cvtepi32_ps(reduce8(&sums));
                let mw = minima::<C>(blocks, |j| j * C::BYTES);
                let minus = _mm256_mul_ps(_mm256_mul_ps(dx, mw), msum);
                _mm256_sub_ps(_mm256_mul_ps(_mm256_mul_ps(dx, dw), isum), minus)
            }
        }
    }
}

/// The terms of up to eight rows, added up in order; `out[r * stride]` for row r.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_up<C: BlockCodes>(panel: &[u8], units: usize, terms: &[f32], out: &mut [f32], stride: usize) {
    let nested = C::SUBS / const { vectors::<C>() };
    let blocks = units / nested;
    let rows = panel.len() / (blocks * C::BYTES);
    let mut acc = [0.0f32; ROWS];
    if C::STEP == BlockStep::Nested {
        let dots = terms.chunks_exact(units);
        for ((row, dots), acc) in panel.chunks_exact(blocks * C::BYTES).zip(dots).zip(&mut acc) {
            for (block, dots) in row.chunks_exact(C::BYTES).zip(dots.chunks_exact(nested)) {
                let mut t = 0.0f32;
                for dot in dots {
                    t += dot;
                }
                *acc += f16_at(block, C::SCALE_AT) * t;
            }
        }
    } else {
        // Rows that are not there read leftovers, which nobody looks at.
        let mut chains: [&[f32]; ROWS] = [&[]; ROWS];
        for (chain, terms) in chains.iter_mut().zip(terms.chunks_exact(units)) {
            *chain = &terms[..units];
        }
        for u in 0..units {
            for (acc, chain) in acc.iter_mut().zip(&chains) {
                *acc += chain[u];
            }
        }
    }
    for (out, acc) in out.iter_mut().step_by(stride).zip(&acc[..rows]) {
        *out = *acc;
    }
}

/// `out[r * stride]` = row r of `w` times the one token in `acts`.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn rows<C: BlockCodes, L: Level>(w: &[u8], units: usize, scratch: &mut Scratch, out: &mut [f32], stride: usize) {
    let Scratch { acts, terms: buffer } = scratch;
    let nested = C::SUBS / const { vectors::<C>() };
    let row_bytes = units / nested * C::BYTES;
    let group_bytes = 8 / nested * C::BYTES;
    buffer.resize((ROWS * units).next_multiple_of(8), 0.0);
    for (panel, out) in w.chunks(ROWS * row_bytes).zip(out.chunks_mut(ROWS * stride)) {
        let mut unit = 0;
        let (groups, rest) = panel.split_at(panel.len() / group_bytes * group_bytes);
        // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
        unsafe {
            for (blocks, to) in groups.chunks_exact(group_bytes).zip(buffer.chunks_exact_mut(8)) {
                store8(to, terms::<C, L>(blocks, acts, unit));
                unit += 8;
                while unit >= units {
                    unit -= units;
                }
            }
            if !rest.is_empty()
                && let Some(to) = buffer.chunks_exact_mut(8).nth(groups.len() / group_bytes)
            {
                let mut padded = [0; 8 * MAX_BLOCK];
                padded[..rest.len()].copy_from_slice(rest);
                store8(to, terms::<C, L>(&padded[..group_bytes], acts, unit));
            }
            add_up::<C>(panel, units, buffer, out, stride);
        }
    }
}

/// Buffers that keep their memory from call to call.
#[derive(Default)]
struct Scratch {
    acts: Acts,
    terms: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The longest block of a [`BlockCodes`] type.
const MAX_BLOCK: usize = 84;

/// Token by token.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn tokens<C: BlockCodes, L: Level>(call: Call<'_>, scratch: &mut Scratch) {
    const { assert!(C::BYTES <= MAX_BLOCK) };
    let units = call.n / (32 * vectors::<C>());
    let act_bytes = units * C::ACT.bytes();
    for t in 0..call.tokens {
        let act = &call.acts[t * act_bytes..][..act_bytes];
        // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
        unsafe {
            scratch.acts.fill::<C>(act, units, 1, Order::Periodic, false);
            rows::<C, L>(call.w, units, scratch, &mut call.out[t..], call.tokens);
        }
    }
}

compiled_for_both!(BlockCodes; rows_avx2 rows_avx512 = tokens);
