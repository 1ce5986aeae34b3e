//! Error feedback for all widths of a code at once.
//!
//! A row has an error at every width `b`, `(Q_b - W) H (Q_b - W)^T`, and GPTQ's way to make it small (see
//! [`crate::quant::gptq`]) changes the weights that are not rounded yet. But the code of a width is the beginning of
//! the next width's, and what one width would have a weight become is not what the others would: at 3 bits errors are
//! fed back that are larger than all of the steps of 6 bits. So every width feeds back its own errors, in weights of
//! its own, and the columns' codes are chosen for all of them together:
//!
//! - in the order of the factor, column `i` gets the code whose beginnings cost least, `sum over b of 3^b (w_b,i -
//!   T_b[code_b])^2`, where `w_b` are the weights as the errors of width `b` have left them, and the lowest code of
//!   equals; then each width feeds back its error (`pass`);
//! - with the codes as they are, the centroids of each width are those with the least error at the outputs, the
//!   solution of `S^T H S t = S^T H w` with `S` the clusters as columns of ones (`refit`), rounded to half precision;
//! - with the tables as they are, column after column gets the code that is best for all others as they are (`descent`).
//!
//! It starts from the tables of clusters without feedback, with the diagonal of `H` as sensitivities; the first is done
//! once, the other two in turns. That is LNQ (layer-wise non-uniform quantization, Kim et al. 2025, "GuidedQuant"), for
//! several widths at once. Errors of neighbouring widths are one to four (in squares); a share of `4^b` would let them
//! all rise alike, and the widest decide. With `3^b` the narrow ones, which need it most, gain more than the others:
//! `docs/any-precision.md` has what was measured.

mod choice;
mod class;
mod coded;
mod descent;
mod improve;
mod metric;
mod metrics;
mod pass;
mod refit;
mod weighed;

pub use choice::Choice;
pub use class::Class;
pub use coded::Coded;
pub use improve::STRIP;
pub use metric::Metric;
pub use metrics::Metrics;
pub use weighed::{Feedback, shares};

#[cfg(test)]
mod tests;
