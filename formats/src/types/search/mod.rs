//! The scale searches behind the K-quants: given small groups of weights, find for each the scale (and
//! offset) whose rounding loses least.
//!
//! The groups of a block lie side by side in the lanes of `V` vectors. A lane keeps its own chain of
//! float operations in the reference's order, so the bits do not depend on what is beside it; the early
//! exits of a scalar search become selections per lane.
//!
//! Products associate as written in the reference: `w * x * l` is `(w * x) * l`. Codes are kept as
//! floats: they are small integers, which a float holds exactly.

mod affine;
mod symmetric;
#[cfg(test)]
mod tests;
mod unsigned;

pub(super) use affine::{AffineFit, AffineGrid, fit_affine};
pub(super) use symmetric::{SymmetricFit, fit_descent, fit_symmetric};
pub(super) use unsigned::fit_unsigned;

use super::lanes::F4;

/// Groups whose largest magnitude is below this are treated as all zero.
pub(super) const GROUP_EPS: f32 = 1e-15;

/// `4 * V` groups of `N` elements, transposed: lane `k % 4` of `tile[i][k / 4]` is element `i` of
/// group `k`.
pub(super) type Tile<const N: usize, const V: usize> = [[F4; V]; N];

/// Transposes consecutive groups of `N` elements. Groups that `x` does not have are zero.
#[expect(
    clippy::needless_range_loop,
    reason = "a transposition walks two indices"
)]
#[inline]
pub(super) fn tile<const N: usize, const V: usize>(x: &[f32]) -> Tile<N, V> {
    let mut t = [[F4::splat(0.0); V]; N];
    let groups = x.as_chunks::<N>().0;
    let zero = [0.0; N];
    for v in 0..V {
        let [a, b, c, d] = std::array::from_fn(|l| groups.get(4 * v + l).unwrap_or(&zero));
        for i in 0..N {
            t[i][v] = F4::new([a[i], b[i], c[i], d[i]]);
        }
    }
    t
}

/// Sum of each group, in element order from zero.
#[inline]
pub(super) fn group_sums<const N: usize, const V: usize>(w: &Tile<N, V>) -> [[f32; 4]; V] {
    let mut sum = [F4::splat(0.0); V];
    for row in w {
        for v in 0..V {
            sum[v] = sum[v] + row[v];
        }
    }
    sum.map(F4::to_array)
}

/// Rounds of coordinate descent that a search makes at most.
const DESCENT_ROUNDS: usize = 5;
