//! Options of quantizing to widely linear matrices, and the roles of an architecture's tensors.

use trine_formats::widely::{OutputForm, Profile, Scope, TieRule};

use crate::arch::{Arch, Tensor};

/// How matrices become widely linear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Stages of every matrix, 1 to 4.
    pub stages: usize,
    /// The part of a matrix that shares scales.
    pub scope: Scope,
    /// Direction in which ties are rounded.
    pub tie: TieRule,
    /// Precision of the computation; with `None`, that of the training script where all matrices are BF16, otherwise
    /// single precision.
    pub profile: Option<Profile>,
    /// Form of the output matrix.
    pub output: OutputForm,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            stages: 2,
            scope: Scope::default(),
            tie: TieRule::default(),
            profile: None,
            output: OutputForm::default(),
        }
    }
}

/// The role that the architecture gives to a tensor of this name.
pub fn described(arch: &Arch, name: &str) -> Option<&'static Tensor> {
    match name.strip_prefix("blk.").and_then(|n| n.split_once('.')) {
        Some((_, name)) => arch.tensor(true, false, name),
        None => arch.tensor(false, false, name),
    }
}
