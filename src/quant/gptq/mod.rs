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
//! `H` is read from a file that `rimatrix --hessian` made. All of it is done in `f64`; rows are independent of one
//! another, and threads share nothing but rows, so that the bytes depend neither on their number nor on the instruction
//! set.

mod choose;
mod clip;
mod factor;
mod fault;
mod prune;
mod rows;
mod source;
mod strip;
mod tensor;

use std::collections::HashMap;
use std::sync::Arc;

pub(super) use choose::choose;
pub(super) use factor::Factor;
pub use fault::HessianFault;
pub use source::HessianFile;
pub(super) use tensor::round;

/// The share of the mean of the diagonal that is added to it where nothing else is asked for: that of the
/// first GPTQ. MARLIN takes 0.1.
pub const DAMP: f64 = 0.01;

/// How Q4_0 is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Columns that share a scale, 32 or a multiple of it: four neighbouring blocks with one scale make a group of 128.
    pub group: usize,
    /// The share of the mean of the diagonal of `H` that is added to it: above 0, at most 1. Where a few columns are
    /// many times larger than the others, much of it leaves these with plain rounding.
    pub damp: f64,
    /// As MARLIN's program does: natural order, a search for the scale of every group when it is reached, in which only
    /// positive scales are tried, rounded to half floats in the end, and a group without negative weights uses half of
    /// the codes.
    pub compat: bool,
    /// Two of four neighbouring columns become zero. Not with `compat`.
    pub sparse: bool,
}

impl Options {
    /// Scales of Q4_0 that are tried for a group.
    pub fn candidates(&self) -> usize {
        let signs = if self.compat { 1 } else { 2 };
        signs * (clip::SHRINKS + 1)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { group: 32, damp: DAMP, compat: false, sparse: false }
    }
}

/// What a recipe says of GPTQ.
#[derive(Clone, Debug)]
pub struct Gptq {
    /// Where the Hessians are.
    pub hessians: Arc<HessianFile>,
    /// How to round.
    pub options: Options,
}

/// The tensors of a plan that are rounded with error feedback.
#[derive(Debug)]
pub(super) struct Job {
    pub gptq: Gptq,
    /// Their number in the plan, and that of the input they read.
    pub inputs: HashMap<usize, usize>,
}

impl Job {
    /// The tensors that read the same input as tensor number `index`, in order.
    pub fn mates(&self, index: usize) -> Vec<usize> {
        let input = self.inputs.get(&index);
        let mut mates: Vec<usize> =
            self.inputs.iter().filter(|(_, of)| Some(*of) == input).map(|(&mate, _)| mate).collect();
        mates.sort_unstable();
        mates
    }
}

/// What became of the tensors that were rounded with error feedback.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackReport {
    /// How many there are.
    pub tensors: usize,
    /// Tensors whose Hessian needed more damping than was asked for, and how much.
    pub damped: Vec<(String, f64)>,
}

#[cfg(test)]
pub(super) mod tests;
