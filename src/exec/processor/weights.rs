//! A processor with the weights of a program.

use std::sync::Arc;

use super::profile::Profile;
use crate::cancel::CancelToken;
use crate::kernels::Isa;
use crate::ops::matmul::Matrix;
use crate::ops::observe::ActivationObserver;
use crate::ops::rope::Rope;
use crate::program::{MatrixId, Setting};

/// Contexts are counted in steps of this many positions.
const CONTEXT_STEP: usize = 256;

/// The pass was ended between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Options of a pass.
#[derive(Clone, Default)]
pub struct PassOptions {
    /// How the weights are read.
    pub setting: Setting,
    /// Positions that the contexts may hold, which decides between two sets of RoPE factors.
    pub n_ctx: usize,
    /// Sees the rows that are multiplied with the weights.
    pub observer: Option<Arc<dyn ActivationObserver>>,
    /// Ends the pass between two blocks.
    pub cancel: Option<CancelToken>,
    /// The hidden states that are given with the tokens, `[tokens][columns]`, for programs that read some.
    pub hidden: Vec<f32>,
    /// Times the operations.
    pub profile: Option<Arc<Profile>>,
}

/// A processor with the weights of one program.
pub struct Processor {
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// The program's matrices, by number.
    pub matrices: Vec<Matrix>,
    /// Position embeddings.
    pub ropes: Ropes,
}

/// Position embeddings of the global and the window layers.
#[derive(Clone)]
pub struct Ropes {
    /// Those in contexts as long as those of the training, and in longer ones.
    pub all: [[Rope; 2]; 2],
    /// Positions of a context of the training.
    pub original_context: usize,
}

impl Ropes {
    /// Those in a context of `n_ctx` positions.
    pub fn of(&self, n_ctx: usize) -> &[Rope; 2] {
        let longer = n_ctx.next_multiple_of(CONTEXT_STEP) > self.original_context;
        &self.all[usize::from(longer)]
    }
}

impl Processor {
    /// A matrix by its number in the program.
    pub fn matrix(&self, id: MatrixId) -> &Matrix {
        &self.matrices[id.0]
    }
}
