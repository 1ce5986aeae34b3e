//! A model in a file of its own that drafts for another from states of that model's blocks, as a part of the other.

use std::sync::Arc;

use trine_formats::gguf::ModelFile;

use super::config::{Config, Drafter};
use super::error::ModelError;
use super::load::{Loader, SharedEnds, Special};
use super::lora::Adapters;
use super::lower::{Lowered, Lowering};
use super::options::LoadOptions;
use crate::exec::{PassOptions, Processor};
use crate::program::Program;

/// The projection of inputs of a model's blocks to the states that a drafter reads.
pub(super) struct Fusion {
    program: Program,
    processor: Processor,
}

impl Fusion {
    /// The states of rows of inputs. Runs on the current pool.
    pub fn run(&self, inputs: &[f32]) -> Vec<f32> {
        let mut states = Vec::new();
        let sink = &mut |_: usize, row: &[f32]| states.extend_from_slice(row);
        self.processor.logits(&self.program, inputs, &PassOptions::default(), sink);
        states
    }

    /// Elements of a row of inputs.
    pub fn inputs(&self) -> usize {
        self.program.shape(self.program.taken()).columns
    }
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

    /// Loads it with `options`; `shared` are the ends of the model.
    ///
    /// # Errors
    /// Everything that is wrong with its tensors.
    pub fn load(
        self,
        options: &LoadOptions,
        shared: SharedEnds,
    ) -> Result<(Config, Program, Processor, Fusion), ModelError> {
        let Found { file, drafter } = self;
        let c = &drafter.config;
        let options = &LoadOptions { adapters: Vec::new(), offload: None, ..options.clone() };
        let special = Special { anyprec: None, widely: None };
        let mut loader = Loader::new(&file, special, options, Adapters::default(), c);
        loader.enter(0);
        let factors = loader.rope_factors();
        let lowered = loader.drafter(&drafter, shared).and_then(|mut ends| {
            let norm = ends.fuse_norm.take();
            let fusion = Lowering::fusion(&mut loader, &drafter, norm, ends.fuse.clone());
            Some((fusion, Lowering::drafter(&mut loader, &drafter, ends)?))
        });
        loader.finish()?;
        let (fusion, block) = lowered.ok_or_else(|| ModelError::Drafter("it has no block".to_owned()))?;
        let ropes = c.ropes(factors);
        let ready = |Lowered { program, matrices, .. }: Lowered| {
            (program, Processor { isa: options.isa, matrices, ropes: ropes.clone() })
        };
        let ((program, processor), (fuse, fuser)) = (ready(block), ready(fusion));
        Ok((drafter.config, program, processor, Fusion { program: fuse, processor: fuser }))
    }
}
