//! Q4_0, Q4_1, Q5_0, Q5_1: blocks of 32 with one scale, and an offset or none.
//!
//! Without importance nothing is searched: the ends of a block decide its scale. With importance the search is the
//! one of `trine_formats`, on the vectors of the instruction set.

use std::arch::x86_64::*;

use trine_formats::types::{TypeId, encode_on, info};

use super::super::chain::load8;
use super::super::quantize::{f16_bytes, finite_amax, first_extreme, pack32};
use super::super::simd::{Avx2, Avx512};
use crate::scalar::definition;

/// Weights per block.
const BLOCK: usize = 32;

/// Writes the codes of a block: fifth bits where there are any, then nibbles.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn write_codes<const FIVE: bool>(codes: __m256i, mut out: &mut [u8]) {
    if FIVE {
        let fifth = _mm256_movemask_epi8(_mm256_slli_epi16::<3>(codes));
        let (bits, rest) = out.split_at_mut(4);
        bits.copy_from_slice(&fifth.to_le_bytes());
        out = rest;
    }
    let nibble = _mm_set1_epi8(15);
    let low = _mm_and_si128(_mm256_castsi256_si128(codes), nibble);
    let high = _mm_and_si128(_mm256_extracti128_si256::<1>(codes), nibble);
    let nibbles = _mm_or_si128(low, _mm_slli_epi16::<4>(high));
    let out = &mut out[..16];
    // SAFETY: 16 bytes; the store asks for no alignment.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), nibbles) }
}

/// Codes from `(x - min) * inverse + half`, cut off, at most `top`. None is negative.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn codes(x: &[f32; BLOCK], min: Option<f32>, inverse: f32, half: f32, top: i32) -> __m256i {
    let (inverse, half) = (_mm256_set1_ps(inverse), _mm256_set1_ps(half));
    let mut l = [_mm256_setzero_si256(); 4];
    for (l, x) in l.iter_mut().zip(x.as_chunks::<8>().0) {
        let mut v = load8(x);
        if let Some(min) = min {
            v = _mm256_sub_ps(v, _mm256_set1_ps(min));
        }
        let v = _mm256_add_ps(_mm256_mul_ps(v, inverse), half);
        *l = _mm256_min_epi32(_mm256_cvttps_epi32(v), _mm256_set1_epi32(top));
    }
    pack32(l)
}

/// The extreme element becomes code 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn plain_symmetric<const FIVE: bool, const BYTES: usize>(ty: TypeId, x: &[f32; BLOCK], out: &mut [u8; BYTES]) {
    let half = if FIVE { 16.0 } else { 8.0 };
    let d = finite_amax(x).map(|amax| match amax {
        0.0 => 0.0 / -half,
        _ => first_extreme(x, amax) / -half,
    });
    let inverse = d.map(|d| if d == 0.0 { 0.0 } else { 1.0 / d });
    let (Some(d), Some(inverse)) = (d, inverse.filter(|v| v.is_finite())) else {
        return definition(ty)(x, None, out);
    };
    out[..2].copy_from_slice(&f16_bytes(d));
    let codes = codes(x, None, inverse, half + 0.5, 2 * half as i32 - 1);
    write_codes::<FIVE>(codes, &mut out[2..]);
}

/// Smallest and largest element, each the first of equals, which matters for the sign of a zero.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn ends(x: &[f32; BLOCK]) -> (f32, f32) {
    let eights = x.as_chunks::<8>().0;
    let (mut lo, mut hi) = (load8(&eights[0]), load8(&eights[0]));
    for x in &eights[1..] {
        lo = _mm256_min_ps(lo, load8(x));
        hi = _mm256_max_ps(hi, load8(x));
    }
    for shift in [1, 2, 4] {
        let order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let order = _mm256_xor_si256(order, _mm256_set1_epi32(shift));
        lo = _mm256_min_ps(lo, _mm256_permutevar8x32_ps(lo, order));
        hi = _mm256_max_ps(hi, _mm256_permutevar8x32_ps(hi, order));
    }
    let (mut ends, mut found) = ([0.0; 2], [false; 2]);
    for x in eights {
        for (k, end) in [lo, hi].into_iter().enumerate() {
            let at = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(load8(x), end));
            if at != 0 && !found[k] {
                ends[k] = x[at.trailing_zeros() as usize];
                found[k] = true;
            }
        }
    }
    (ends[0], ends[1])
}

/// Codes evenly between the smallest and the largest element.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn plain_affine<const FIVE: bool, const BYTES: usize>(ty: TypeId, x: &[f32; BLOCK], out: &mut [u8; BYTES]) {
    let top = if FIVE { 31.0 } else { 15.0 };
    let (min, max) = match finite_amax(x) {
        Some(_) => ends(x),
        None => (f32::NAN, f32::NAN),
    };
    let d = (max - min) / top;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    if !(d.is_finite() && inverse.is_finite()) {
        return definition(ty)(x, None, out);
    }
    out[..2].copy_from_slice(&f16_bytes(d));
    out[2..4].copy_from_slice(&f16_bytes(min));
    let codes = codes(x, Some(min), inverse, 0.5, top as i32);
    write_codes::<FIVE>(codes, &mut out[4..]);
}

/// A row without importance.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn encode_plain<const AFFINE: bool, const FIVE: bool, const BYTES: usize>(ty: TypeId, x: &[f32], row: &mut [u8]) {
    let blocks = row.as_chunks_mut::<BYTES>().0.iter_mut();
    for (out, x) in blocks.zip(x.as_chunks::<BLOCK>().0) {
        if AFFINE {
            plain_affine::<FIVE, BYTES>(ty, x, out);
        } else {
            plain_symmetric::<FIVE, BYTES>(ty, x, out);
        }
    }
}

macro_rules! encoders {
    ($($name:ident $avx2:ident $avx512:ident: $ty:ident, $affine:literal, $five:literal;)*) => { $(
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) fn $avx2(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
            match importance {
                None => encode_plain::<$affine, $five, { info::$ty.bytes }>(TypeId::$ty, x, row),
                Some(_) => encode_on::$name(Avx2::here(), x, importance, row),
            }
        }

        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        pub(super) fn $avx512(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
            match importance {
                None => encode_plain::<$affine, $five, { info::$ty.bytes }>(TypeId::$ty, x, row),
                Some(_) => encode_on::$name(Avx512::here(), x, importance, row),
            }
        }
    )* };
}

encoders! {
    q4_0 q4_0_avx2 q4_0_avx512: Q4_0, false, false;
    q4_1 q4_1_avx2 q4_1_avx512: Q4_1, true, false;
    q5_0 q5_0_avx2 q5_0_avx512: Q5_0, false, true;
    q5_1 q5_1_avx2 q5_1_avx512: Q5_1, true, true;
}
