//! The scale searches behind the K-quants and the weighted blocks of 32: given small groups of weights, find for
//! each the scale (and offset) whose rounding loses least.
//!
//! Each group has a lane, and each element of the groups a vector. A lane keeps its own chain of float
//! operations in the reference's order, so the bits do not depend on what is beside it; the early exits of a
//! scalar search become selections per lane.
//!
//! Products associate as written in the reference: `w * x * l` is `(w * x) * l`. Codes are kept as floats: they
//! are small integers, which a float holds exactly.
//!
//! Everything here is inlined into the function that names the instruction set, because only there may the
//! compiler use it. For the same reason there are loops where closures would be shorter: a closure is a function
//! of its own, without that instruction set.

mod affine;
mod symmetric;
#[cfg(test)]
mod tests;
mod unsigned;

pub(super) use affine::{AffineFit, AffineGrid, fit_affine};
pub(super) use symmetric::{DescentFit, SymmetricFit, fit_descent, fit_symmetric};
pub(super) use unsigned::fit_unsigned;

use super::lanes::{LANES, Simd, Vector};

/// Groups whose largest magnitude is below this are treated as all zero.
pub(super) const GROUP_EPS: f32 = 1e-15;

/// Rounds of coordinate descent that a search makes at most.
const DESCENT_ROUNDS: usize = 5;

/// Consecutive groups of `N` elements side by side: lane `k` of vector `i` is element `i` of group `k`. Lanes
/// for which `x` has no group are zero.
#[inline(always)]
pub(super) fn side_by_side<S: Simd, const N: usize>(simd: S, x: &[f32]) -> [S::F; N] {
    const { assert!(N.is_multiple_of(8)) };
    const ZEROS: [f32; 8] = [0.0; 8];
    let groups = x.as_chunks::<N>().0;
    let mut elements = [simd.splat(0.0); N];
    for at in (0..N).step_by(8) {
        let mut rows = [&ZEROS; LANES];
        for (row, group) in rows.iter_mut().zip(groups) {
            *row = &group[at..].as_chunks().0[0];
        }
        let columns = simd.columns(rows);
        for (element, column) in elements[at..].iter_mut().zip(columns) {
            *element = column;
        }
    }
    elements
}

/// `importance * sqrt(sigma2 + x * x)`: the weight of an element's error, from its column's importance and its
/// size against the mean square around it. Large weights matter more, and small ones are not forgotten.
#[inline(always)]
pub(super) fn error_weights<V: Vector, const N: usize>(x: &[V; N], importance: &[V; N], sigma2: V) -> [V; N] {
    let mut weights = *importance;
    for i in 0..N {
        weights[i] = importance[i] * (sigma2 + x[i] * x[i]).sqrt();
    }
    weights
}

/// Sum of each group, in element order from zero.
#[inline(always)]
pub(super) fn sums<S: Simd, const N: usize>(simd: S, elements: &[S::F; N]) -> S::F {
    let mut sum = simd.splat(0.0);
    for &v in elements {
        sum = sum + v;
    }
    sum
}
