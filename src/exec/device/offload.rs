//! Which blocks a GPU runs, and what it is given.

use std::collections::BTreeSet;
use std::sync::Arc;

use trine_cuda::program::{self as gpu, Limits, Weights};
use trine_cuda::run::{Host, Passes};

use crate::kv::CacheTypes;
use crate::program::RopeKind;

/// A GPU, and how much of a model it runs.
#[derive(Clone, Debug)]
pub struct Offload {
    /// The GPU.
    pub device: Arc<dyn Host>,
    /// Number of layers, counted from the last one, where the logits count as one: 1 is the logits alone, one more than
    /// there are blocks is all.
    pub layers: usize,
}

impl Offload {
    /// The first of `blocks` blocks that the GPU runs; their number where it runs the logits alone.
    pub fn first(&self, blocks: usize) -> usize {
        (blocks + 1).saturating_sub(self.layers)
    }

    /// Starts recorded blocks.
    ///
    /// # Errors
    /// More memory than the GPU has, by a table of what the model needs, and what the device says. One line.
    pub(crate) fn start(&self, recorded: Recorded<'_>) -> Result<Offloaded, String> {
        let Recorded { program, weights, start, angles } = recorded;
        let passes = self.device.start(program, &weights).map_err(|e| e.to_string())?;
        Ok(Offloaded { passes, start, ropes: angles })
    }
}

/// The input of a recorded program's passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Tokens.
    Tokens,
    /// The residual stream that the operations before the program's make of them.
    Rows,
}

/// A model's last blocks as launches of a GPU, and what they want.
pub struct Recorded<'a> {
    /// The launches.
    pub program: gpu::Program,
    /// Its weights, laid out when they are asked for.
    pub weights: Vec<Weights<'a>>,
    /// The input of its passes.
    pub start: Start,
    /// The position embedding of each of its tables.
    pub angles: Angles,
}

/// Which of a model's position embeddings each table of angles holds.
#[derive(Clone, Debug)]
pub struct Angles(pub(super) Vec<RopeKind>);

impl Angles {
    /// The position embedding in table number `kind`.
    pub fn of(&self, kind: usize) -> Option<RopeKind> {
        self.0.get(kind).copied()
    }
}

/// The last blocks of a model, with their memory on a GPU.
pub(crate) struct Offloaded {
    /// Runs their passes.
    pub passes: Box<dyn Passes>,
    /// The input of its passes.
    pub start: Start,
    /// The position embedding of each of its tables.
    pub ropes: Angles,
}

/// How a program is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    /// Limits of a pass, for which there is memory.
    pub limits: Limits,
    /// The first block.
    pub first: usize,
    /// The types of keys and values.
    pub cache: CacheTypes,
    /// Where products are computed in half precision, the names of the matrices that the file calls pruned.
    pub halves: Option<&'a BTreeSet<String>>,
}
