//! The part of a model that a GPU runs.

use trine_cuda::program::{Limits, ProgramError};

use super::{Inner, Model, ModelError};
use crate::exec::{Offloaded, Recorded, Recording};
use crate::program::RopeKind;

impl Model {
    /// Bounds logits that a GPU computed, where the model has a bound.
    pub(crate) fn bound(&self, logits: &mut [f32]) {
        if let Some((_, cap)) = self.inner.program.bound() {
            crate::ops::soft_cap(logits, cap);
        }
    }

    /// The blocks from `first` on and the logits as launches of a GPU for passes within `limits`. Their weights have to
    /// be where the file has them ([`LoadOptions::repack`]).
    ///
    /// # Errors
    /// The first operation that no kernel does, by name; sizes that a GPU does not have.
    pub fn record(&self, limits: Limits, first: usize) -> Result<Recorded<'_>, ProgramError> {
        let Inner { program, processor, cache, halves, anyprec, widely, .. } = &*self.inner;
        if anyprec.is_some() || widely.is_some() {
            let what = if anyprec.is_some() { "any-precision weights" } else { "widely linear weights" };
            return Err(ProgramError::Missing(what.to_owned()));
        }
        processor.record(program, Recording { limits, first, cache: *cache, halves: halves.as_ref() })
    }

    /// Cosine and sine of every pair of one of its position embeddings, in a context of `n_ctx` positions.
    pub(crate) fn angles(&self, kind: RopeKind, n_ctx: usize, position: usize) -> Vec<(f32, f32)> {
        self.inner.processor.ropes.of(n_ctx)[kind as usize].pairs(position)
    }

    /// Checks that the GPU has a kernel for each operation of its part. Nothing is allocated there.
    pub(super) fn check_offload(&self) -> Result<(), ModelError> {
        let Some(first) = self.inner.first_offloaded() else {
            return Ok(());
        };
        let least = Limits { tokens: 1, wanted: 1, context: 1, page: 1, pages: 1 };
        self.record(least, first).map(|_| ()).map_err(|e| ModelError::Offload(e.to_string()))
    }

    /// Starts the GPU's part, with memory for passes within `limits`; `None` where it runs nothing.
    ///
    /// # Errors
    /// More memory than the GPU has, by a table of what the model needs, and what the device says. One line.
    pub(crate) fn start(&self, limits: Limits) -> Option<Result<Offloaded, String>> {
        let (offload, first) = (self.inner.offload.as_ref()?, self.inner.first_offloaded()?);
        let recorded = self.record(limits, first).map_err(|e| e.to_string());
        Some(recorded.and_then(|recorded| offload.start(recorded)))
    }
}
