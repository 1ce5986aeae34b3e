//! The blocks of a model that a GPU runs, behind those that stay on the processor.

use std::sync::Arc;

use trine_cuda::program::Limits;
use trine_cuda::run::{Host, Passes};

use super::recording::{Recorded, Start};
use super::{Inner, Model, ModelError};

/// A GPU, and how much of a model it runs.
#[derive(Clone, Debug)]
pub struct Offload {
    /// The GPU.
    pub device: Arc<dyn Host>,
    /// So many of the last layers, where the logits count as one: 1 is the logits alone, one more than there are blocks
    /// is all.
    pub layers: usize,
}

impl Inner {
    /// The first block that the GPU runs; as many as there are where that is none but the logits.
    pub(super) fn first_elsewhere(&self) -> Option<usize> {
        let offload = self.offload.as_ref()?;
        Some((self.config.n_layer + 1).saturating_sub(offload.layers))
    }

    /// The blocks that the processor runs.
    pub(super) fn here(&self) -> usize {
        self.first_elsewhere().unwrap_or(self.blocks.len())
    }
}

impl Model {
    /// Whether a GPU runs some of it, the logits among that.
    pub fn is_offloaded(&self) -> bool {
        self.inner.offload.is_some()
    }

    /// Checks that the GPU has a kernel for all that it is to do. Nothing is allocated there.
    pub(super) fn check_offload(&self) -> Result<(), ModelError> {
        let Some(first) = self.inner.first_elsewhere() else {
            return Ok(());
        };
        let least = Limits { tokens: 1, wanted: 1, context: 1, page: 1, pages: 1 };
        let recorded = self.record(least, first);
        recorded.map(|_| ()).map_err(|e| ModelError::Offload(e.to_string()))
    }

    /// Starts what the GPU runs, with memory for passes within `limits`; `None` where it runs nothing.
    ///
    /// # Errors
    /// More memory than the GPU has, by a table of what the model needs, and what the device says. One line.
    pub(crate) fn start(&self, limits: Limits) -> Option<Result<Offloaded, String>> {
        let (offload, first) = (self.inner.offload.as_ref()?, self.inner.first_elsewhere()?);
        let recorded = self.record(limits, first).map_err(|e| e.to_string());
        Some(recorded.and_then(|recorded| {
            let Recorded { program, weights, start, angles } = recorded;
            let passes = offload.device.start(program, &weights);
            Ok(Offloaded { passes: passes.map_err(|e| e.to_string())?, start, ropes: angles })
        }))
    }
}

/// A program of the last blocks of a model, with its memory on a GPU.
pub(crate) struct Offloaded {
    /// What runs it.
    pub passes: Box<dyn Passes>,
    /// What its passes are given.
    pub start: Start,
    /// Which of the model's position embeddings each of its tables holds.
    pub ropes: super::Angles,
}
