//! TQ2_0 and TQ1_0. Both start from the codes of a block, 0, 1, 2 for -1, 0, +1 times the largest magnitude.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::num::f16_at;
use trine_formats::types::{Part, info};

use super::super::chain::load8;
use super::super::codes::load32;
use super::super::quantize::{f16_bytes, finite_amax, pack32, store32};
use crate::scalar::definition;

/// Weights per block of both types.
const BLOCK: usize = 256;
const TQ2_0: usize = info::TQ2_0.bytes;
const TQ1_0: usize = info::TQ1_0.bytes;

/// The codes of a block and its scale, or `None` where a value is not finite or the scale so small that its
/// inverse is not.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn codes(x: &[f32; BLOCK]) -> Option<([__m256i; 8], f32)> {
    let d = finite_amax(x)?;
    let id = if d == 0.0 { 0.0 } else { 1.0 / d };
    if !id.is_finite() {
        return None;
    }
    let id = _mm256_set1_ps(id);
    let (half, minus_half) = (_mm256_set1_ps(0.5), _mm256_set1_ps(-0.5));
    let mut codes = [_mm256_set1_epi8(1); 8];
    for (codes, x) in codes.iter_mut().zip(x.as_chunks::<32>().0) {
        // Nothing is beyond 1, so that rounding is two comparisons, each 0 or -1.
        let mut signs = [_mm256_setzero_si256(); 4];
        for (sign, x) in signs.iter_mut().zip(x.as_chunks::<8>().0) {
            let v = _mm256_mul_ps(load8(x), id);
            let plus = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_GE_OQ>(v, half));
            let minus = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LE_OQ>(v, minus_half));
            *sign = _mm256_sub_epi32(minus, plus);
        }
        *codes = _mm256_add_epi8(*codes, pack32(signs));
    }
    Some((codes, d))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn encode_tq2_0(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    let blocks = x.as_chunks::<BLOCK>().0.iter();
    for (x, out) in blocks.zip(row.as_chunks_mut::<TQ2_0>().0) {
        let Some((codes, d)) = codes(x) else {
            definition(TypeId::TQ2_0)(x, None, out);
            continue;
        };
        for (c, out) in codes.as_chunks::<4>().0.iter().zip(out.as_chunks_mut::<32>().0) {
            // Codes have two bits: no shift of a pair of bytes moves a bit from one to the other.
            let low = _mm256_or_si256(c[0], _mm256_slli_epi16::<2>(c[1]));
            let high = _mm256_or_si256(_mm256_slli_epi16::<4>(c[2]), _mm256_slli_epi16::<6>(c[3]));
            store32(out, _mm256_or_si256(low, high));
        }
        out[info::TQ2_0.at(Part::Scale)..].copy_from_slice(&f16_bytes(d));
    }
}

/// `3 a + b` in bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn next_digit(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi8(_mm256_add_epi8(a, a), _mm256_add_epi8(a, b))
}

/// `ceil(256 n / 243)` of numbers of five digits in base 3, in bytes: `n + ceil(13 n / 243)`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fractions(n: __m256i) -> __m256i {
    // 270 / 65536 is above 1 / 243 by so little that no quotient changes up to 13 * 242 + 242.
    let divided = |n| {
        let above = _mm256_add_epi16(_mm256_mullo_epi16(n, _mm256_set1_epi16(13)), _mm256_set1_epi16(242));
        _mm256_mulhi_epu16(above, _mm256_set1_epi16(270))
    };
    let low = divided(_mm256_and_si256(n, _mm256_set1_epi16(0xff)));
    let high = divided(_mm256_srli_epi16::<8>(n));
    _mm256_add_epi8(n, _mm256_or_si256(low, _mm256_slli_epi16::<8>(high)))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn encode_tq1_0(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    let blocks = x.as_chunks::<BLOCK>().0.iter();
    for (x, out) in blocks.zip(row.as_chunks_mut::<TQ1_0>().0) {
        let Some((c, d)) = codes(x) else {
            definition(TypeId::TQ1_0)(x, None, out);
            continue;
        };
        // 160 weights: digit t of byte m is weight 32 t + m.
        let mut n = c[0];
        for &c in &c[1..5] {
            n = next_digit(n, c);
        }
        store32(out, fractions(n));
        // 80 weights: 160 + 16 t + m. Lane 0 of the sums holds the digits of even t first.
        let (a, b, last) = (c[5], c[6], c[7]);
        let swap = |v| _mm256_permute2x128_si256::<0x01>(v, v);
        let mut n = next_digit(a, swap(a));
        n = next_digit(next_digit(n, b), swap(b));
        n = next_digit(n, last);
        let mut bytes = [0; 32];
        store32(&mut bytes, fractions(n));
        out[32..48].copy_from_slice(&bytes[..16]);
        // 16 weights: 240 + 4 t + m, and a last digit of 0.
        let mut codes = [0; 32];
        store32(&mut codes, last);
        for (m, out) in out[48..52].iter_mut().enumerate() {
            let digits = (0..4).fold(0, |n, t| 3 * n + u32::from(codes[16 + 4 * t + m]));
            *out = (3 * digits * 256).div_ceil(243) as u8;
        }
        out[info::TQ1_0.at(Part::Scale)..].copy_from_slice(&f16_bytes(d));
    }
}

/// Weights of the four codes that two bits can hold: products, as in the definitions. (The compiler makes negations of
/// products with -1 where it sees them, which changes the sign of a NaN.)
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn levels(d: f32) -> __m256 {
    let units = _mm_setr_ps(-1.0, 0.0, 1.0, 2.0);
    _mm256_broadcast_ps(&_mm_mul_ps(units, _mm_set1_ps(d)))
}

/// 32 codes 0..=3 to floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store_levels(codes: __m256i, levels: __m256, out: &mut [f32; 32]) {
    let halves = [_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes)];
    for (half, out) in halves.into_iter().zip(out.as_chunks_mut::<16>().0) {
        let eights = [half, _mm_unpackhi_epi64(half, half)];
        for (codes, out) in eights.into_iter().zip(out.as_chunks_mut::<8>().0) {
            let values = _mm256_permutevar_ps(levels, _mm256_cvtepu8_epi32(codes));
            // SAFETY: 8 floats; the store asks for no alignment.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), values) }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn decode_tq2_0(row: &[u8], out: &mut [f32]) {
    let three = _mm256_set1_epi8(3);
    let blocks = row.as_chunks::<TQ2_0>().0.iter();
    for (block, y) in blocks.zip(out.as_chunks_mut::<BLOCK>().0) {
        let levels = levels(f16_at(block, info::TQ2_0.at(Part::Scale)));
        for (h, y) in y.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let q = load32(block, 32 * h);
            let codes = [q, _mm256_srli_epi16::<2>(q), _mm256_srli_epi16::<4>(q), _mm256_srli_epi16::<6>(q)];
            for (codes, y) in codes.into_iter().zip(y.as_chunks_mut::<32>().0) {
                store_levels(_mm256_and_si256(codes, three), levels, y);
            }
        }
    }
}

/// The first digit of packed bytes, and the bytes that hold the others.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn take_digit(b: __m256i) -> (__m256i, __m256i) {
    // The digit is floor(3 b / 256): how many of 85 and 170 are below b.
    let one = _mm256_set1_epi8(1);
    let above = |n: u8| {
        let n = _mm256_set1_epi8(n.cast_signed());
        _mm256_min_epu8(_mm256_subs_epu8(b, n), one)
    };
    let digit = _mm256_add_epi8(above(85), above(170));
    (digit, _mm256_add_epi8(b, _mm256_add_epi8(b, b)))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn decode_tq1_0(row: &[u8], out: &mut [f32]) {
    let blocks = row.as_chunks::<TQ1_0>().0.iter();
    for (block, y) in blocks.zip(out.as_chunks_mut::<BLOCK>().0) {
        let mut codes = [0; BLOCK];
        let (first, rest) = codes.split_at_mut(160);
        let mut b = load32(block, 0);
        for codes in first.as_chunks_mut::<32>().0 {
            let digit;
            (digit, b) = take_digit(b);
            store32(codes, digit);
        }
        // The last 16 bytes that hold five digits, and the 4 that hold four.
        let mut bytes = [0; 32];
        bytes[..20].copy_from_slice(&block[32..52]);
        let mut b = load32(&bytes, 0);
        for t in 0..5 {
            let digit;
            (digit, b) = take_digit(b);
            store32(&mut bytes, digit);
            rest[16 * t..16 * (t + 1)].copy_from_slice(&bytes[..16]);
            if t < 4 {
                rest[80 + 4 * t..80 + 4 * (t + 1)].copy_from_slice(&bytes[16..20]);
            }
        }
        let levels = levels(f16_at(block, info::TQ1_0.at(Part::Scale)));
        for (codes, y) in codes.as_chunks::<32>().0.iter().zip(y.as_chunks_mut().0) {
            store_levels(load32(codes, 0), levels, y);
        }
    }
}
