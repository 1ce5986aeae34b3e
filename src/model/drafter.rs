//! A model in a file of its own that drafts for another from inputs of that model's blocks, as a part of the other.

use std::sync::Arc;

use trine_formats::gguf::ModelFile;

use super::config::{Config, Drafter, DrafterKind};
use super::error::ModelError;
use super::load::{Loader, SharedEnds, Special};
use super::lora::Adapters;
use super::lower::{Lowered, Lowering};
use super::options::LoadOptions;
use crate::exec::{PassOptions, Processor};
use crate::program::Program;

/// The projection of inputs of a model's blocks to the states that a drafter reads.
pub(super) struct Fusion {
    pub program: Program,
    pub processor: Processor,
}

impl Fusion {
    /// Elements of a row of inputs.
    pub fn inputs(&self) -> usize {
        self.program.shape(self.program.taken()).columns
    }

    /// The states of rows of inputs. Runs on the current pool.
    pub fn run(&self, inputs: &[f32]) -> Vec<f32> {
        let mut states = Vec::new();
        let sink = &mut |_: usize, row: &[f32]| states.extend_from_slice(row);
        self.processor.logits(&self.program, inputs, &PassOptions::default(), sink);
        states
    }
}

/// A drafter with its weights.
pub(super) struct LoadedDrafter {
    pub kind: DrafterKind,
    pub config: Config,
    /// Its blocks.
    pub block: (Program, Processor),
    /// The program that reads inputs of the model's blocks, or makes keys and values of them, where it has one.
    pub reader: Option<(Program, Processor)>,
}

/// A drafter that was found to fit a model.
pub(super) struct Found {
    file: Arc<ModelFile>,
    pub drafter: Drafter,
}

impl Found {
    /// The drafter in `file` for a model of configuration `c`.
    ///
    /// # Errors
    /// None is there, or it is not for this model.
    pub fn new(file: &Arc<ModelFile>, c: &Config) -> Result<Found, ModelError> {
        Ok(Found { file: file.clone(), drafter: c.drafter(&**file)? })
    }

    /// Loads it with `options`, of a model whose ends are `shared`.
    ///
    /// # Errors
    /// Everything that is wrong with its tensors.
    pub fn load(self, options: &LoadOptions, shared: SharedEnds) -> Result<LoadedDrafter, ModelError> {
        let Found { file, drafter } = self;
        let c = &drafter.config;
        let options = &LoadOptions { adapters: Vec::new(), offload: None, ..options.clone() };
        let special = Special { anyprec: None, widely: None };
        let mut loader = Loader::new(&file, special, options, Adapters::default(), c);
        let factors = loader.rope_factors();
        loader.enter(0);
        let lowered = lowered(&mut loader, &drafter, shared);
        loader.finish()?;
        let (block, reader) = lowered.ok_or_else(|| ModelError::Drafter("it has no block".to_owned()))?;
        let ropes = c.ropes(factors);
        let ready = |Lowered { program, matrices, .. }: Lowered| {
            (program, Processor { isa: options.isa, matrices, ropes: ropes.clone() })
        };
        let (block, reader) = (ready(block), reader.map(ready));
        Ok(LoadedDrafter { kind: drafter.kind, config: drafter.config, block, reader })
    }
}

/// The programs of the blocks of a drafter and of what reads inputs of the model's for it, where anything does. `None` where
/// a tensor is missing, which is noted.
fn lowered(loader: &mut Loader<'_>, drafter: &Drafter, shared: SharedEnds) -> Option<(Lowered, Option<Lowered>)> {
    let c = &drafter.config;
    if let DrafterKind::Assistant = drafter.kind {
        let ends = loader.assistant(drafter, shared);
        return Some((Lowering::assistant(loader, drafter, ends)?, None));
    }
    let mut ends = loader.drafter(drafter, shared)?;
    let (fuse, norm) = (ends.fuse.clone(), ends.fuse_norm.take());
    match drafter.kind {
        DrafterKind::States { adds_to_norm, .. } => {
            let reader = Lowering::fusion(loader, drafter, norm, fuse);
            Some((Lowering::drafter(loader, c, ends, adds_to_norm)?, Some(reader)))
        }
        _ => {
            let (block, keys) = Lowering::block_drafter(loader, c, ends)?;
            Some((block, Some(Lowering::key_reader(loader, drafter, (fuse, norm), keys))))
        }
    }
}
