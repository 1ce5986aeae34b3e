//! Parts of a model that are models of their own.

use super::config::Config;
use super::lower::Lowered;
use crate::exec::{Processor, Ropes};
use crate::kernels::Isa;
use crate::program::Program;

/// A part of a model, lowered, before it is known where it runs.
pub(super) struct LoweredPart {
    pub config: Config,
    /// `None` where a tensor is missing, which is noted.
    pub lowered: Option<Lowered>,
}

impl LoweredPart {
    /// Ready to run on the processor, with the position embeddings of the model.
    pub fn ready(self, isa: Isa, ropes: &Ropes) -> Option<(Config, Program, Processor)> {
        let Lowered { program, matrices, .. } = self.lowered?;
        Some((self.config, program, Processor { isa, matrices, ropes: ropes.clone() }))
    }
}
