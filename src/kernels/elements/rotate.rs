//! The rotation of rotary position embedding, a head at a time.

use super::compiled_for;
use crate::Isa;

/// `(x[i], x[n + i])` to `(x[i] cos[i] - x[n + i] sin[i], x[i] sin[i] + x[n + i] cos[i])` for `i` below `n = cos.len()`.
///
/// # Panics
/// When there are fewer sines or less than `2 n` elements.
pub fn rotate_halves(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let n = cos.len();
    let (a, b) = x[..2 * n].split_at_mut(n);
    let sin = &sin[..n];
    compiled_for!(isa, halves(a: &mut [f32], b: &mut [f32], cos: &[f32], sin: &[f32]));
}

#[inline(always)]
fn halves(a: &mut [f32], b: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
        (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
    }
}

/// Rotates neighbours: `x[i] = x[i] cos[i] + x[i ^ 1] sin[i]` for `i` below `cos.len()`, an even number, where every
/// cosine stands twice and its sine as `(-s, s)`.
///
/// # Panics
/// When there are fewer sines or elements than cosines.
pub fn rotate_adjacent(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let x = &mut x[..cos.len()];
    let sin = &sin[..cos.len()];
    let done = match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` is only made for what the processor has; the lengths are equal.
        Isa::Avx512 => unsafe { adjacent_avx512(x, cos, sin) },
        _ => 0,
    };
    let (x, cos, sin) = (&mut x[done..], &cos[done..], &sin[done..]);
    for ((x, c), s) in x
        .chunks_exact_mut(2)
        .zip(cos.chunks_exact(2))
        .zip(sin.chunks_exact(2))
    {
        (x[0], x[1]) = (x[0] * c[0] + x[1] * s[0], x[1] * c[1] + x[0] * s[1]);
    }
}

/// Whole sixteens; how many elements that were.
///
/// # Safety
/// AVX-512 F; all as long as `x`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn adjacent_avx512(x: &mut [f32], cos: &[f32], sin: &[f32]) -> usize {
    use std::arch::x86_64::*;
    for ((x, c), s) in x
        .chunks_exact_mut(16)
        .zip(cos.chunks_exact(16))
        .zip(sin.chunks_exact(16))
    {
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
