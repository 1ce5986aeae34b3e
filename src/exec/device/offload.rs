//! Which blocks a GPU runs, and what it is given.

use std::collections::BTreeSet;
use std::sync::Arc;

use trine_cuda::program::{self as gpu, ProgramError, Weights};
use trine_cuda::run::{Failure, Host, Passes};

use crate::exec::processor::Processor;
use crate::kv::CacheTypes;
use crate::program::{Program, RopeKind, Temperature};

pub use trine_cuda::program::Limits;

/// Why a GPU does not run its part of a model, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// An operation without a kernel, by name, or sizes that a GPU does not have.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// It has not the memory, which a table of what the model needs shows, or it fails.
    #[error(transparent)]
    Run(#[from] Failure),
}

impl DeviceError {
    /// True if it has no kernel for an operation of the model.
    pub fn is_missing(&self) -> bool {
        matches!(self, DeviceError::Program(ProgramError::Missing(_)))
    }
}

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

    /// Starts the blocks of a program that the GPU runs, with memory for passes within the limits of `options`.
    ///
    /// # Errors
    /// As [`check`]; more memory than the GPU has, by a table of what the model needs, and the device's error.
    pub fn start(
        &self,
        processor: &Processor,
        program: &Program,
        options: Recording<'_>,
    ) -> Result<Offloaded, DeviceError> {
        let Recorded { program, weights, start, angles } = processor.record(program, options)?;
        let passes = self.device.start(program, &weights)?;
        Ok(Offloaded { passes, start, ropes: angles })
    }
}

/// Checks that a GPU has a kernel for each operation of its part. Nothing is allocated there.
///
/// # Errors
/// The first operation that no kernel does, by name; sizes that a GPU does not have.
pub fn check(processor: &Processor, program: &Program, options: Recording<'_>) -> Result<(), DeviceError> {
    processor.record(program, options)?;
    Ok(())
}

/// The input of a recorded program's passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// Tokens.
    Tokens,
    /// The residual stream that the operations before the program's make of them.
    Rows,
}

/// A model's last blocks as launches of a GPU, and what they want.
pub(super) struct Recorded<'a> {
    /// The launches.
    pub program: gpu::Program,
    /// Its weights, laid out when they are asked for.
    pub weights: Vec<Weights<'a>>,
    /// The input of its passes.
    pub start: Start,
    /// The position embedding of each of its tables.
    pub angles: Angles,
}

/// A table of pairs of numbers for each position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum PositionTable {
    /// Cosines and sines of a position embedding.
    Rope(RopeKind),
    /// A factor, and a zero beside it.
    Factor(Temperature),
}

/// The tables that a model's passes want, by number.
#[derive(Clone, Debug)]
pub(super) struct Angles(pub(super) Vec<PositionTable>);

impl Angles {
    /// The pairs of table number `kind` at a position, of which `ropes` gives those of position embeddings.
    pub fn at(
        &self,
        kind: usize,
        position: usize,
        ropes: &dyn Fn(RopeKind, usize) -> Vec<(f32, f32)>,
    ) -> Vec<(f32, f32)> {
        match self.0.get(kind) {
            Some(PositionTable::Rope(kind)) => ropes(*kind, position),
            Some(PositionTable::Factor(factor)) => vec![(factor.at(position), 0.0)],
            None => Vec::new(),
        }
    }
}

/// The last blocks of a model, with their memory on a GPU.
pub struct Offloaded {
    /// Runs their passes.
    pub(super) passes: Box<dyn Passes>,
    /// The input of its passes.
    pub(super) start: Start,
    /// The position embedding of each of its tables.
    pub(super) ropes: Angles,
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
