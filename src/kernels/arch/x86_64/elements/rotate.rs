//! Rotations in vectors.

use std::arch::x86_64::*;

/// [`crate::elements::rotate_adjacent`] of whole sixteens; how many elements that were.
///
/// # Safety
/// AVX-512 F; all as long as `x`.
#[target_feature(enable = "avx512f")]
pub unsafe fn adjacent(x: &mut [f32], cos: &[f32], sin: &[f32]) -> usize {
    for ((x, c), s) in x.chunks_exact_mut(16).zip(cos.chunks_exact(16)).zip(sin.chunks_exact(16)) {
        // SAFETY: sixteen values of each.
        unsafe {
            let v = _mm512_loadu_ps(x.as_ptr());
            let swapped = _mm512_permute_ps::<0b10_11_00_01>(v);
            let straight = _mm512_mul_ps(v, _mm512_loadu_ps(c.as_ptr()));
            let across = _mm512_mul_ps(swapped, _mm512_loadu_ps(s.as_ptr()));
            _mm512_storeu_ps(x.as_mut_ptr(), _mm512_add_ps(straight, across));
        }
    }
    x.len() / 16 * 16
}
