//! The rotation of rotary position embedding, a head at a time.

use crate::Isa;
use crate::arch::elements as native;
use crate::proof::compiled_for;

/// `(x[i], x[n + i])` to `(x[i] cos[i] - x[n + i] sin[i], x[i] sin[i] + x[n + i] cos[i])` for `i` below `n =
/// cos.len()`.
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
    let done = native::rotate_adjacent(isa, x, cos, sin);
    let (x, cos, sin) = (&mut x[done..], &cos[done..], &sin[done..]);
    for ((x, c), s) in x.chunks_exact_mut(2).zip(cos.chunks_exact(2)).zip(sin.chunks_exact(2)) {
        (x[0], x[1]) = (x[0] * c[0] + x[1] * s[0], x[1] * c[1] + x[0] * s[1]);
    }
}
