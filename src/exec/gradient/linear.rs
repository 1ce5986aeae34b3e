//! Products of rows with a matrix `W`, `[rows][columns]`, and their derivatives.

use super::product::{Packed, Place, View, accumulate, multiply};
use super::real::Real;
use crate::kernels::Isa;

/// Rows of a matrix that are rearranged together, so that no large one is in memory twice; few in the tests, whose
/// matrices are small. A multiple of [`super::product::BLOCK`] leaves the blocks of every sum as they are.
const ROWS: usize = if cfg!(test) { 10 } else { 4096 };

/// Sums over weights, one vector for each matrix whose gradient is taken.
pub struct Gradients<T> {
    /// `[rows][columns]` each, those of all experts one after the other.
    pub sums: Vec<Vec<T>>,
    /// The new sum, from the old one and a weight's gradient.
    pub fold: fn(T, T) -> T,
}

/// `y = W x` for every row of `x`.
pub fn forward<T: Real>(isa: Isa, x: &[T], weight: &[T], columns: usize) -> Vec<T> {
    let rows = weight.len() / columns;
    let mut y = vec![T::default(); x.len() / columns * rows];
    for (part, weight) in weight.chunks(ROWS * columns).enumerate() {
        let packed = Packed::new(View::new(weight, columns).transposed());
        let place = Place { stride: rows, offset: part * ROWS, add: false };
        multiply(isa, View::new(x, columns), &packed, &mut y, place);
    }
    y
}

/// The gradient at `x`, of that at `y`.
pub fn backward<T: Real>(isa: Isa, dy: &[T], weight: &[T], columns: usize) -> Vec<T> {
    let rows = weight.len() / columns;
    let mut dx = vec![T::default(); dy.len() / rows * columns];
    for (part, weight) in weight.chunks(ROWS * columns).enumerate() {
        let from = part * ROWS;
        let dy = View::new(dy, rows).columns(from..from + weight.len() / columns);
        let place = Place { add: true, ..Place::whole(columns) };
        multiply(isa, dy, &Packed::new(View::new(weight, columns)), &mut dx, place);
    }
    dx
}

/// Folds the gradient at `W`, of that at `y`, into `sums`.
pub fn at_weights<T: Real>(isa: Isa, x: &[T], columns: usize, dy: &[T], sums: &mut [T], fold: fn(T, T) -> T) {
    let rows = sums.len() / columns;
    accumulate(isa, View::new(dy, rows).transposed(), &Packed::new(View::new(x, columns)), sums, fold);
}
