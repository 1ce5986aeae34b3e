//! GPTQ: rounding with error feedback, into types that llama.cpp runs as they are.
//!
//! A layer computes `W x`. With `H = sum of x x^T` over a text, rounding `W` to `Q` costs `(Q - W) H (Q - W)^T` at its
//! outputs. GPTQ (Frantar et al. 2022) rounds the columns of a row from first to last and after each of them changes
//! those that are not rounded yet so that they make up for the error as well as they can. With `U` the upper triangle
//! that satisfies `H^-1 = U^T U`, the error of column `i` is `e = (w_i - q_i) / U_ii`, and every later `w_j` becomes
//! `w_j - e U_ij`.
//!
//! The scales of all groups are settled first, from the weights as they are, and are those of the file, so that the
//! errors are the file's too: the encoder of the type finds them as it does with an importance matrix, which the
//! diagonal of `H` is, those of Q4_0 a search. The columns are then taken in falling order of that diagonal, so that
//! those that matter most err least. MARLIN's way ([`Options::compat`]; section 3.5 of its paper) takes them in natural
//! order and finds a group's scale when its first column is reached, from the weights as the errors so far have left
//! them. `docs/gptq.md` has what was measured.
//!
//! A row that is rounded is gone over again (not in MARLIN's way, nor where weights became zero): each choice becomes the
//! best beside all others as they are now.
//!
//! `H` is read from a file that `rimatrix --hessian` made, whose inputs are those of the unquantized model, or it is
//! [measured](Measure) while matrices are rounded, behind those that are rounded already. All of it is done in `f64`; rows are independent of one
//! another, and threads share nothing but rows, so that the bytes depend neither on their number nor on the instruction
//! set.

mod celled;
mod clip;
mod coded;
mod descent;
mod experts;
mod factor;
mod fault;
mod feedback;
mod losses;
mod multiples;
mod options;
mod paired;
mod prune;
mod rows;
mod source;
mod tensor;

pub(super) use factor::Factor;
pub use fault::{HessianFault, NoHessian};
pub use feedback::{Feedback, FeedbackReport};
pub(super) use feedback::{NAME, takes};
pub(super) use losses::Sample;
pub use options::{DAMP, Gptq, Options};
pub use source::{Calibration, HessianFile, Measure, Measured, Measurements};
#[cfg(test)]
use tensor::round;

#[cfg(test)]
pub(super) mod tests;
