//! The scale searches behind the K-quants and the weighted 32-blocks, with groups of weights as lanes: the
//! bits of `trine_formats`' own searches for values that are finite and of ordinary size.
//!
//! Products associate as there: `w * x * l` is `(w * x) * l`. Codes are floats: small integers are exact.

mod affine;
mod descent;
mod symmetric;
mod unsigned;

pub(super) use affine::{AffineFit, Grid, fit_affine};
pub(super) use descent::{DescentFit, fit_descent};
pub(super) use symmetric::{SymmetricFit, fit_symmetric};
pub(super) use unsigned::fit_unsigned;

/// Groups whose largest magnitude is below this are treated as all zero.
pub(super) const GROUP_EPS: f32 = 1e-15;

/// Rounds of coordinate descent that a search makes at most.
const DESCENT_ROUNDS: usize = 5;
