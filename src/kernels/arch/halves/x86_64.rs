//! The lanes of [`crate::shared::halves`] in vectors, and conversions.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::arch::doubles::{AVX2_ROWS, AVX512_ROWS, Doubles, widening};
use crate::arch::functions::functions;
use crate::shared::halves::{BLOCK, F16Encoding, LANES, Line, SCALE, STEPS};
use crate::{Isa, Level};

mod row;

/// Prefetches a line, at this place in the order of the program: compilers move the intrinsic, and requests that end up
/// side by side are slow.
#[inline(always)]
fn prefetch(p: *const Line) {
    // SAFETY: every x86-64 processor has the instruction, which takes any address.
    unsafe {
        asm!("prefetcht0 [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));
    }
}

/// AVX2 and FMA: two vectors of four.
pub struct Avx2;

#[inline]
#[target_feature(enable = "avx2,fma")]
fn widen256<const K: usize, const BRAIN: bool>(x: __m256i) -> __m256d {
    let x = match K {
        0 => _mm256_slli_epi64::<48>(x),
        // A shuffle, since shifts compete with the multiply-adds.
        1 => _mm256_shuffle_epi32::<0b10_10_00_00>(x),
        2 => _mm256_slli_epi64::<16>(x),
        _ => x,
    };
    // All that is left lies in the upper half, for which the arithmetic shift of 32 bits will do.
    let mask = _mm256_set1_epi64x(widening(BRAIN).1.cast_signed());
    let shifted = if BRAIN { _mm256_srai_epi32::<3>(x) } else { _mm256_srai_epi32::<6>(x) };
    _mm256_castsi256_pd(_mm256_and_si256(shifted, mask))
}

impl Doubles for Avx2 {
    const ROWS: usize = AVX2_ROWS;
    type Words = [__m256i; 2];
    type Sums = [__m256d; 2];

    #[inline(always)]
    fn lines(rows: usize) -> usize {
        // Eight sums hide the latency of the additions, and few rows leave room for them.
        match rows {
            1 => 4,
            2 => 2,
            _ => 1,
        }
    }

    functions! { [#[inline] #[target_feature(enable = "avx2,fma")]]
        zero() -> Self::Sums { [_mm256_setzero_pd(); 2] }
        words(p: *const Line) -> Self::Words {
            let p: *const __m256i = p.cast();
            [_mm256_loadu_si256(p), _mm256_loadu_si256(p.add(1))]
        }
        no_words() -> Self::Words { [_mm256_setzero_si256(); 2] }
        prefetch(p: *const Line) -> () { prefetch(p) }
        field[const K: usize, const BRAIN: bool](words: Self::Words) -> Self::Sums {
            [widen256::<K, BRAIN>(words[0]), widen256::<K, BRAIN>(words[1])]
        }
        add(acc: Self::Sums, w: Self::Sums, c: *const f64) -> Self::Sums {
            let c = _mm256_set1_pd(*c);
            [_mm256_fmadd_pd(w[0], c, acc[0]), _mm256_fmadd_pd(w[1], c, acc[1])]
        }
        add_row[const BRAIN: bool](
            acc: &mut [Self::Sums; 4],
            lines: *const Line,
            quads: usize,
            coefs: *const f64,
            ahead: usize,
        ) -> bool {
            row::avx2::<BRAIN>(acc, lines, quads, coefs, ahead);
            true
        }
        load(p: *const f64) -> Self::Sums { [_mm256_loadu_pd(p), _mm256_loadu_pd(p.add(4))] }
        store(p: *mut f64, v: Self::Sums) -> () {
            _mm256_storeu_pd(p, v[0]);
            _mm256_storeu_pd(p.add(4), v[1]);
        }
        store_f32(p: *mut f32, v: Self::Sums) -> () {
            _mm_storeu_ps(p, _mm256_cvtpd_ps(v[0]));
            _mm_storeu_ps(p.add(4), _mm256_cvtpd_ps(v[1]));
        }
    }
}

/// AVX-512 F and DQ.
pub struct Avx512;

impl Doubles for Avx512 {
    const ROWS: usize = AVX512_ROWS;
    type Words = __m512i;
    type Sums = __m512d;

    #[inline(always)]
    fn lines(_: usize) -> usize {
        4
    }

    functions! { [#[inline] #[target_feature(enable = "avx512f,avx512dq")]]
        zero() -> __m512d { _mm512_setzero_pd() }
        words(p: *const Line) -> __m512i { _mm512_loadu_si512(p.cast()) }
        no_words() -> __m512i { _mm512_setzero_si512() }
        prefetch(p: *const Line) -> () { prefetch(p) }
        field[const K: usize, const BRAIN: bool](x: __m512i) -> __m512d {
            let x = match K {
                0 => _mm512_slli_epi64::<48>(x),
                1 => _mm512_slli_epi64::<32>(x),
                2 => _mm512_slli_epi64::<16>(x),
                _ => x,
            };
            // The shift fills with the sign, of which the mask leaves one bit.
            let mask = _mm512_set1_epi64(widening(BRAIN).1.cast_signed());
            let shifted = if BRAIN { _mm512_srai_epi64::<3>(x) } else { _mm512_srai_epi64::<6>(x) };
            _mm512_castsi512_pd(_mm512_and_si512(shifted, mask))
        }
        add(acc: __m512d, w: __m512d, c: *const f64) -> __m512d { _mm512_fmadd_pd(w, _mm512_set1_pd(*c), acc) }
        add_row[const BRAIN: bool](
            acc: &mut [Self::Sums; 4],
            lines: *const Line,
            quads: usize,
            coefs: *const f64,
            ahead: usize,
        ) -> bool {
            row::avx512::<BRAIN>(acc, lines, quads, coefs, ahead);
            true
        }
        load(p: *const f64) -> __m512d { _mm512_loadu_pd(p) }
        store(p: *mut f64, v: __m512d) -> () { _mm512_storeu_pd(p, v) }
        store_f32(p: *mut f32, v: __m512d) -> () { _mm256_storeu_ps(p, _mm512_cvtpd_ps(v)) }
    }
}

/// The first values of [`crate::shared::halves::coefficients`], and how many they are.
pub fn coefficients(isa: Isa, x: &[f32], out: &mut [f64]) -> usize {
    // SAFETY: `isa` proves that the processor has AVX-512 F and DQ, or F16C, and AVX with AVX2.
    unsafe {
        match isa.vectors() {
            Level::Avx512 => coefficients_avx512(x, out),
            Level::Avx2 => coefficients_avx2(x, out),
            _ => 0,
        }
    }
}

/// Eight values as half floats; `None` where there is no instruction for it, or [`put_eight`] does it.
#[inline]
pub fn round(isa: Isa, x: &[f32; 8]) -> Option<[u16; 8]> {
    // SAFETY: `isa` proves that the processor has F16C, and AVX with AVX2.
    (isa.vectors() == Level::Avx2).then(|| unsafe { round_avx2(x) })
}

/// The first values of [`crate::shared::halves::put_lane`], and how many they are.
pub fn put_lane(isa: Isa, x: &[f32], block: &mut [Line], lane: usize, form: F16Encoding) -> usize {
    if !isa.has(Level::Avx512) {
        return 0;
    }
    assert!(lane < LANES && block.len() >= x.len().div_ceil(STEPS) * BLOCK, "no lane {lane} of {} steps", x.len());
    // SAFETY: `isa` proves that the processor has AVX-512; the block was just compared.
    unsafe {
        match form {
            F16Encoding::Normalized => put_lane_avx512::<true>(x, block, lane),
            _ => put_lane_avx512::<false>(x, block, lane),
        }
    }
}

/// Eight lanes of [`crate::shared::halves::put_step`]; true where this was done.
#[inline]
pub fn put_eight(isa: Isa, x: &[f32; 8], line: &mut Line, shift: u32, keep: u64, form: F16Encoding) -> bool {
    let there = isa.has(Level::Avx512);
    if there {
        // SAFETY: `isa` proves that the processor has AVX-512, which includes F16C.
        unsafe { put_eight_avx512(x, line, shift, keep, form) };
    }
    there
}

/// [`crate::shared::halves::coefficients`] of whole sixteens; how many that were.
#[target_feature(enable = "avx512f,avx512dq")]
fn coefficients_avx512(x: &[f32], out: &mut [f64]) -> usize {
    let scale = _mm512_set1_pd(SCALE);
    for (x, out) in x.chunks_exact(16).zip(out.chunks_exact_mut(16)) {
        // SAFETY: sixteen values on both sides.
        unsafe {
            let half = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(x.as_ptr()));
            let x = _mm512_cvtph_ps(half);
            let low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
            let high = _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(x));
            _mm512_storeu_pd(out.as_mut_ptr(), _mm512_mul_pd(low, scale));
            _mm512_storeu_pd(out.as_mut_ptr().add(8), _mm512_mul_pd(high, scale));
        }
    }
    x.len().min(out.len()) / 16 * 16
}

/// [`crate::shared::halves::coefficients`] of whole eights; how many values that were.
#[target_feature(enable = "avx,f16c")]
fn coefficients_avx2(x: &[f32], out: &mut [f64]) -> usize {
    let scale = _mm256_set1_pd(SCALE);
    for (x, out) in x.chunks_exact(8).zip(out.chunks_exact_mut(8)) {
        // SAFETY: eight values on both sides.
        unsafe {
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
            let x = _mm256_cvtph_ps(half);
            let low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
            let high = _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x));
            _mm256_storeu_pd(out.as_mut_ptr(), _mm256_mul_pd(low, scale));
            _mm256_storeu_pd(out.as_mut_ptr().add(4), _mm256_mul_pd(high, scale));
        }
    }
    x.len().min(out.len()) / 8 * 8
}

/// Eight half floats.
#[inline]
#[target_feature(enable = "avx,f16c")]
fn round_avx2(x: &[f32; 8]) -> [u16; 8] {
    let mut halves = [0; 8];
    // SAFETY: eight values on both sides.
    unsafe {
        let x = _mm256_loadu_ps(x.as_ptr());
        let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
        _mm_storeu_si128(halves.as_mut_ptr().cast(), half);
    }
    halves
}

/// Sixteen half floats to their normalized form, [`crate::shared::halves::form::normalized_f32`].
#[inline]
#[target_feature(enable = "avx512f")]
fn normalized(half: __m256i) -> __m256i {
    let bits = _mm512_castps_si512(_mm512_cvtph_ps(half));
    let magnitude = _mm512_srli_epi32::<14>(_mm512_slli_epi32::<1>(bits));
    let some = _mm512_test_epi32_mask(magnitude, magnitude);
    let stored = _mm512_maskz_sub_epi32(some, magnitude, _mm512_set1_epi32((127 - 25) << 10));
    let sign = _mm512_srli_epi32::<16>(_mm512_and_si512(bits, _mm512_set1_epi32(i32::MIN)));
    _mm512_cvtepi32_epi16(_mm512_or_si512(stored, sign))
}

/// [`crate::shared::halves::put_lane`] of whole sixteens; how many values that were.
///
/// # Safety
/// AVX-512 F; the block has the lane and as many steps as `x` has values.
#[target_feature(enable = "avx512f")]
unsafe fn put_lane_avx512<const NORMALIZED: bool>(x: &[f32], block: &mut [Line], lane: usize) -> usize {
    let mut to = block.as_mut_ptr().cast::<u64>();
    for x in x.chunks_exact(16) {
        // SAFETY: sixteen values, and four words of the lane in as many rows of lines.
        unsafe {
            let x = _mm512_loadu_ps(x.as_ptr());
            let half = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
            let half = if NORMALIZED { normalized(half) } else { half };
            let mut words = [0u64; 4];
            _mm256_storeu_si256(words.as_mut_ptr().cast(), half);
            for (i, word) in words.into_iter().enumerate() {
                *to.add(i * LANES + lane) = word;
            }
            to = to.add(4 * LANES);
        }
    }
    x.len() / 16 * 16
}

/// Eight lanes of [`crate::shared::halves::put_step`].
#[inline]
#[target_feature(enable = "avx512f,f16c")]
fn put_eight_avx512(x: &[f32; 8], line: &mut Line, shift: u32, keep: u64, form: F16Encoding) {
    // SAFETY: eight values and an aligned line.
    unsafe {
        let x = _mm256_loadu_ps(x.as_ptr());
        let mut half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
        if form == F16Encoding::Normalized {
            half = _mm256_castsi256_si128(normalized(_mm256_castsi128_si256(half)));
        }
        let count = _mm_cvtsi32_si128(shift.cast_signed());
        let words = _mm512_sll_epi64(_mm512_cvtepu16_epi64(half), count);
        let to = line.0.as_mut_ptr().cast();
        let kept = _mm512_and_si512(_mm512_load_si512(to), _mm512_set1_epi64(keep.cast_signed()));
        _mm512_store_si512(to, _mm512_or_si512(kept, words));
    }
}
