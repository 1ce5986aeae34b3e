//! The part of a model that GPUs run.

use std::ops::Range;

use super::{Inner, ModelError, Weights, WidthError};
use crate::exec::{self, DeviceError, Limits, Offloaded, Recording};
use crate::program::RopeKind;
use trine_formats::anyprec::AnyPrec;

impl Inner {
    fn recording(&self, limits: Limits, blocks: Range<usize>) -> Recording<'_> {
        let widths = self.offload.as_ref().map_or(&[][..], |offload| &offload.widths);
        let turned = self.config.turns_quantized();
        Recording { limits, blocks, cache: self.cache, turned, halves: self.halves.as_ref(), widths }
    }
}

impl Weights {
    /// The widths in bits at which the model can run, ascending; none when it is no any-precision file. A file that
    /// ends early has fewer than it was made with, and so may a GPU that runs layers.
    pub fn widths(&self) -> &[u8] {
        match &self.inner.offload {
            Some(offload) if !offload.widths.is_empty() => &offload.widths,
            _ => self.any_precision().map_or(&[], AnyPrec::widths),
        }
    }

    /// Checks that the model can run at `bits`.
    ///
    /// # Errors
    /// It cannot; the message says at which it can.
    pub fn check_width(&self, bits: u8) -> Result<(), WidthError> {
        match self.any_precision() {
            Some(anyprec) => anyprec.check_width(bits)?,
            None => return Err(WidthError::Only(bits)),
        }
        let there = self.widths();
        match there.contains(&bits) {
            true => Ok(()),
            false => Err(WidthError::NotOnGpu { width: bits, there: there.to_vec() }),
        }
    }

    /// Bounds logits that a GPU computed, where the model has a bound.
    pub(crate) fn bound(&self, logits: &mut [f32]) {
        if let Some((_, cap)) = self.inner.program.bound() {
            crate::ops::soft_cap(logits, cap);
        }
    }

    /// Cosine and sine of every pair of one of its position embeddings, in a context of `n_ctx` positions.
    pub(crate) fn angles(&self, kind: RopeKind, n_ctx: usize, position: usize) -> Vec<(f32, f32)> {
        self.inner.processor.ropes.of(n_ctx)[kind as usize].pairs(position)
    }

    /// Asks a GPU whether it has a kernel for each operation of the blocks from `first` on and the logits, for passes
    /// within `limits`. The weights have to be where the file has them ([`LoadOptions::repack`](super::LoadOptions)).
    ///
    /// # Errors
    /// The first operation that no kernel does, by name; sizes that a GPU does not have.
    pub fn check_on_device(&self, limits: Limits, first: usize) -> Result<(), DeviceError> {
        let inner = &*self.inner;
        let all = inner.program.blocks().len() + 1;
        exec::check(&inner.processor, &inner.program, inner.recording(limits, first..all))
    }

    /// Checks that the GPU has a kernel for each operation of its part. Nothing is allocated there.
    pub(super) fn check_offload(&self) -> Result<(), ModelError> {
        let inner = &*self.inner;
        let Some(offload) = &inner.offload else {
            return Ok(());
        };
        let least = Limits { tokens: 1, wanted: 1, context: 1, page: 1, pages: 1, slots: 1 };
        let blocks = inner.program.blocks().len();
        let recording = inner.recording(least, offload.first(blocks)..blocks + 1);
        offload.check(&inner.processor, &inner.program, recording).map_err(ModelError::Offload)
    }

    /// Starts the GPU's part, with memory for passes within `limits`; `None` where it runs nothing.
    ///
    /// # Errors
    /// More memory than the GPU has, by a table of what the model needs, and what the device says.
    pub(crate) fn start(&self, limits: Limits) -> Option<Result<Offloaded, DeviceError>> {
        let inner = &*self.inner;
        let (offload, first) = (inner.offload.as_ref()?, inner.first_offloaded()?);
        let all = inner.program.blocks().len() + 1;
        Some(offload.start(&inner.processor, &inner.program, inner.recording(limits, first..all)))
    }
}
