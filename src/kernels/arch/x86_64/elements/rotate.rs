//! Rotations in vectors.

use std::arch::x86_64::*;

use crate::{Isa, Level};

/// The first elements of [`crate::elements::rotate_adjacent`], and how many they are.
pub fn rotate_adjacent(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) -> usize {
    // SAFETY: `isa` proves that the processor has AVX-512.
    if isa.has(Level::Avx512) { unsafe { adjacent_avx512(x, cos, sin) } } else { 0 }
}

/// Whole sixteens; how many elements that were.
#[target_feature(enable = "avx512f")]
fn adjacent_avx512(x: &mut [f32], cos: &[f32], sin: &[f32]) -> usize {
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
    x.len().min(cos.len()).min(sin.len()) / 16 * 16
}
