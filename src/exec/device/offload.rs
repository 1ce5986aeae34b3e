//! Which blocks GPUs run, and what they are given.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use trine_cuda::program::{self as gpu, ProgramError, Share, Weights};
use trine_cuda::run::{Failure, Host, Member, Passes};

use super::added::Added;
use super::cut::cut;
use crate::exec::processor::Processor;
use crate::kv::CacheTypes;
use crate::ops::rope::Turn;
use crate::program::{Program, RopeKind, Temperature, Value};

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

/// A GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its name, for errors where there are several.
    pub name: String,
    /// The GPU itself.
    pub host: Arc<dyn Host>,
}

/// How several GPUs share the layers that they run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Sharing {
    /// Each runs some of them.
    #[default]
    Layers,
    /// Each has some rows of every matrix, and all compute what stands between products.
    Rows,
}

/// GPUs, and how much of a model they run.
#[derive(Clone, Debug)]
pub struct Offload {
    /// The GPUs, in the order in which they run blocks.
    pub devices: Vec<Gpu>,
    /// The share of each in the layers or in the rows, as [`Offload::among`] has it.
    pub shares: Vec<f32>,
    /// How they share the layers.
    pub sharing: Sharing,
    /// Number of layers, counted from the last one, where the logits count as one: 1 is the logits alone, one more than
    /// there are blocks is all.
    pub layers: usize,
    /// The widths of any-precision weights that GPUs have, each at most once: the planes of the widest of them are
    /// brought there. Without any, or with none of the file's, they have all.
    pub widths: Vec<u8>,
}

impl Offload {
    /// One GPU that runs the last `layers` layers.
    pub fn one(host: Arc<dyn Host>, layers: usize) -> Offload {
        let name = "the GPU".to_owned();
        Offload {
            devices: vec![Gpu { name, host }],
            shares: vec![1.0],
            sharing: Sharing::Layers,
            layers,
            widths: Vec::new(),
        }
    }

    /// Several GPUs that run the last `layers` layers: the first of these on the first GPU, each having its share of
    /// them. GPUs behind the last share have none; without any they have shares by their free memory.
    ///
    /// # Errors
    /// A device that does not tell its memory.
    pub fn among(devices: Vec<Gpu>, shares: &[f32], layers: usize) -> Result<Offload, DeviceError> {
        let shares = match shares.iter().any(|share| *share > 0.0) {
            true => shares.iter().copied().chain(std::iter::repeat(0.0)).take(devices.len()).collect(),
            false if devices.len() == 1 => vec![1.0],
            false => {
                let free = devices.iter().map(|gpu| Ok(gpu.host.free_memory()? as f32));
                free.collect::<Result<Vec<f32>, DeviceError>>()?
            }
        };
        Ok(Offload { devices, shares, sharing: Sharing::Layers, layers, widths: Vec::new() })
    }

    /// The blocks of each GPU that has some, of `blocks` blocks, behind the last of which are the logits.
    fn parts(&self, blocks: usize) -> Vec<(&Gpu, Range<usize>)> {
        let first = self.first(blocks);
        let parts = cut(blocks + 1 - first, &self.shares).into_iter();
        parts.map(|(number, part)| (&self.devices[number], first + part.start..first + part.end)).collect()
    }

    /// The first of `blocks` blocks that the GPU runs; their number where it runs the logits alone.
    pub fn first(&self, blocks: usize) -> usize {
        (blocks + 1).saturating_sub(self.layers)
    }

    /// The GPUs that have rows of matrices, and their shares; none where they share layers.
    fn rows(&self) -> (Vec<&Gpu>, Vec<f32>) {
        let some = self.devices.iter().zip(self.shares.iter().copied()).filter(|(_, share)| *share > 0.0);
        match self.sharing {
            Sharing::Rows => some.unzip(),
            Sharing::Layers => (Vec::new(), Vec::new()),
        }
    }

    /// Checks that GPUs have a kernel for each operation of their parts. Nothing is allocated there.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check(&self, processor: &Processor, program: &Program, options: Recording<'_>) -> Result<(), DeviceError> {
        let (gpus, shares) = self.rows();
        if gpus.len() > 1 {
            let mut numbers = 0..gpus.len();
            return numbers.try_for_each(|number| {
                processor.record(program, options.clone(), Some(Share::new(&shares, number)))?;
                Ok(())
            });
        }
        let mut parts = self.parts(program.blocks().len()).into_iter();
        parts.try_for_each(|(_, blocks)| check(processor, program, Recording { blocks, ..options.clone() }))
    }

    /// Starts the blocks of a program that GPUs run, with memory for passes within the limits of `options`, whose blocks
    /// are all of them.
    ///
    /// # Errors
    /// As [`check`]; more memory than a GPU has, by a table of what the model needs, and the device's error. Nothing is
    /// allocated before all have the memory.
    pub fn start(
        &self,
        processor: &Processor,
        program: &Program,
        options: Recording<'_>,
    ) -> Result<Offloaded, DeviceError> {
        let (gpus, shares) = self.rows();
        // One GPU has all rows, and shares nothing.
        if let [first, _, ..] = gpus[..] {
            return self
                .start_together(first, (&gpus, &shares), |share| processor.record(program, options.clone(), share));
        }
        let parts = self.parts(program.blocks().len());
        let on = |gpu: &Gpu, failure: Failure| match self.devices.len() {
            1 => failure,
            _ => failure.on(&gpu.name),
        };
        let recorded = parts.iter().map(|(gpu, blocks)| {
            let part = processor.record(program, Recording { blocks: blocks.clone(), ..options.clone() }, None)?;
            Ok((*gpu, part))
        });
        let recorded = recorded.collect::<Result<Vec<_>, DeviceError>>()?;
        for (gpu, part) in &recorded {
            gpu.host.check(&part.program).map_err(|failure| on(gpu, failure))?;
        }
        let parts = recorded.into_iter().map(|(gpu, part)| {
            let Recorded { program, weights, start, leaving, angles, factors } = part;
            let passes = gpu.host.start(program, &weights).map_err(|failure| on(gpu, failure))?;
            Ok(OffloadedPart { passes, start, leaving, tables: angles, factors })
        });
        Ok(Offloaded(parts.collect::<Result<_, DeviceError>>()?))
    }

    /// Starts the blocks on GPUs that share the rows of matrices, each of which has what `record` records for its share.
    fn start_together<'a>(
        &self,
        first: &Gpu,
        (gpus, shares): (&[&'a Gpu], &[f32]),
        record: impl Fn(Option<Share>) -> Result<Recorded<'a>, ProgramError>,
    ) -> Result<Offloaded, DeviceError> {
        let recorded = (0..gpus.len()).map(|number| record(Some(Share::new(shares, number))));
        let mut recorded = recorded.collect::<Result<Vec<_>, ProgramError>>()?;
        for (gpu, part) in gpus.iter().zip(&recorded) {
            gpu.host.check(&part.program).map_err(|failure| failure.on(&gpu.name))?;
        }
        // They differ in nothing but rows.
        let (start, leaving) = (recorded[0].start.clone(), recorded[0].leaving.clone());
        let (tables, factors) = (recorded[0].angles.clone(), recorded[0].factors.clone());
        let members = gpus.iter().zip(recorded.drain(..)).map(|(gpu, part)| Member {
            host: &*gpu.host,
            program: part.program,
            weights: part.weights,
        });
        let passes = first.host.start_together(members.collect());
        let passes = passes.map_err(|(number, failure)| failure.on(&gpus[number].name))?;
        Ok(Offloaded(vec![OffloadedPart { passes, start, leaving, tables, factors }]))
    }
}

/// Checks that a GPU has a kernel for each operation of its part. Nothing is allocated there.
///
/// # Errors
/// The first operation that no kernel does, by name; sizes that a GPU does not have.
pub fn check(processor: &Processor, program: &Program, options: Recording<'_>) -> Result<(), DeviceError> {
    processor.record(program, options, None)?;
    Ok(())
}

/// The input of a recorded program's passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// Tokens.
    Tokens,
    /// The values that the operations before the program's make of them.
    Rows(Vec<Value>),
}

/// A model's last blocks as launches of a GPU, and what they want.
pub(super) struct Recorded<'a> {
    /// The launches.
    pub program: gpu::Program,
    /// Its weights, laid out when they are asked for.
    pub weights: Vec<Weights<'a>>,
    /// The input of its passes.
    pub start: Start,
    /// The values that its passes leave for later blocks.
    pub leaving: Vec<Value>,
    /// The contents of its tables.
    pub angles: Angles,
    /// The factors that its passes are told.
    pub factors: Vec<Added>,
}

/// A table of pairs of numbers for each position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum PositionTable {
    /// Cosines and sines of a position embedding.
    Rope(RopeKind),
    /// The same backwards, or by the first position of a block.
    Turn(RopeKind, Turn),
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
            Some(PositionTable::Turn(kind, turn)) => turn.pairs(position, &|position| ropes(*kind, position)),
            Some(PositionTable::Factor(factor)) => vec![(factor.at(position), 0.0)],
            None => Vec::new(),
        }
    }
}

/// The last blocks of a model, with their memory on GPUs: a part for each GPU, in their order.
pub struct Offloaded(pub(super) Vec<OffloadedPart>);

/// Blocks on one GPU.
pub(super) struct OffloadedPart {
    /// Runs their passes.
    pub passes: Box<dyn Passes>,
    /// The input of its passes.
    pub start: Start,
    /// The values that its passes leave for later blocks.
    pub leaving: Vec<Value>,
    /// The contents of its tables.
    pub tables: Angles,
    /// The factors that its passes are told.
    pub factors: Vec<Added>,
}

/// How a program is recorded.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    /// Limits of a pass, for which there is memory.
    pub limits: Limits,
    /// The blocks, of which the one behind the last stands for the logits.
    pub blocks: Range<usize>,
    /// The types of keys and values.
    pub cache: CacheTypes,
    /// True of keys and of values that are rotated where their type is a quantized one.
    pub turned: [bool; 2],
    /// Where products are computed in half precision, the names of the matrices that the file calls pruned.
    pub halves: Option<&'a BTreeSet<String>>,
    /// The widths of any-precision weights; all of the file's without any.
    pub widths: &'a [u8],
}
