//! The end of a product: lanes added in halves.

use std::arch::x86_64::*;

/// Lanes `l` and `l + h` for `h` = 8, 4, 2, 1.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn lanes(lanes: __m512) -> f32 {
    let upper = _mm512_extractf32x8_ps::<1>(lanes);
    eight(_mm256_add_ps(_mm512_castps512_ps256(lanes), upper))
}

/// Lanes `l` and `l + h` for `h` = 4, 2, 1.
#[inline]
#[target_feature(enable = "avx")]
pub(super) fn eight(eight: __m256) -> f32 {
    let upper = _mm256_extractf128_ps::<1>(eight);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), upper);
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    let one = _mm_add_ss(two, _mm_shuffle_ps::<1>(two, two));
    _mm_cvtss_f32(one)
}

/// Adds lanes `l` and `l + h` of 64, for `h` = 32 and 16.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn quarters([a, b, c, d]: [__m512; 4]) -> __m512 {
    _mm512_add_ps(_mm512_add_ps(a, c), _mm512_add_ps(b, d))
}

/// [`lanes`] of sixteen at once: each step adds the halves of two and puts the sums side by side.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn sixteen(v: [__m512; 16]) -> __m512 {
    let zero = _mm512_setzero_ps();
    let (mut a, mut b, mut c) = ([zero; 8], [zero; 4], [zero; 2]);
    for (i, a) in a.iter_mut().enumerate() {
        // sum 4 j + k comes out at lane 4 k + j
        let at = |s: usize| v[s % 4 * 4 + s / 4];
        let (x, y) = (at(2 * i), at(2 * i + 1));
        let lower = _mm512_shuffle_f32x4::<0b01_00_01_00>(x, y);
        *a = _mm512_add_ps(lower, _mm512_shuffle_f32x4::<0b11_10_11_10>(x, y));
    }
    for (b, pair) in b.iter_mut().zip(a.as_chunks::<2>().0) {
        let [x, y] = *pair;
        let lower = _mm512_shuffle_f32x4::<0b10_00_10_00>(x, y);
        *b = _mm512_add_ps(lower, _mm512_shuffle_f32x4::<0b11_01_11_01>(x, y));
    }
    for (c, pair) in c.iter_mut().zip(b.as_chunks::<2>().0) {
        let [x, y] = *pair;
        let lower = _mm512_shuffle_ps::<0b01_00_01_00>(x, y);
        *c = _mm512_add_ps(lower, _mm512_shuffle_ps::<0b11_10_11_10>(x, y));
    }
    let lower = _mm512_shuffle_ps::<0b10_00_10_00>(c[0], c[1]);
    _mm512_add_ps(lower, _mm512_shuffle_ps::<0b11_01_11_01>(c[0], c[1]))
}
