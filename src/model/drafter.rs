//! A model in a file of its own that drafts for another from inputs of that model's blocks, as a part of the other.

use std::sync::Arc;

use trine_formats::gguf::ModelFile;

use super::config::{Config, DraftBlock, Drafter, DrafterKind};
use super::error::ModelError;
use super::load::{Loader, SharedEnds, Special};
use super::lora::Adapters;
use super::lower::{Lowered, Lowering};
use super::options::LoadOptions;
use super::{Inner, Model};
use crate::exec::{PassOptions, Processor};
use crate::program::Program;

/// How a drafter comes to what it reads of the inputs of another model's blocks.
pub(super) enum Reader {
    /// A projection to the states that it reads beside tokens.
    States(Fusion),
    /// A model over the same positions that stores their keys and values; the drafter drafts blocks behind them.
    Keys(Model, DraftBlock),
}

impl Reader {
    /// Elements of a row of inputs.
    pub fn inputs(&self) -> usize {
        match self {
            Reader::States(fusion) => fusion.program.shape(fusion.program.taken()).columns,
            Reader::Keys(model, _) => model.reads_hidden(),
        }
    }
}

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
}

fn no_block() -> ModelError {
    ModelError::Drafter("it has no block".to_owned())
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

    /// Loads it with `options` as a part of `model`, whose ends are `shared`.
    ///
    /// # Errors
    /// Everything that is wrong with its tensors; a model of which there are no such inputs.
    pub fn load(self, model: &Inner, options: &LoadOptions, shared: SharedEnds) -> Result<Model, ModelError> {
        if model.program.kept().iter().any(|&input| model.program.shape(input).columns != model.config.n_embd) {
            let why = "the model it drafts for has several residual streams side by side";
            return Err(ModelError::Drafter(why.to_owned()));
        }
        let Found { file, drafter } = self;
        let c = &drafter.config;
        let options = &LoadOptions { adapters: Vec::new(), offload: None, ..options.clone() };
        let special = Special { anyprec: None, widely: None };
        let mut loader = Loader::new(&file, special, options, Adapters::default(), c);
        let factors = loader.rope_factors();
        loader.enter(0);
        if let DrafterKind::Assistant = drafter.kind {
            let ends = loader.assistant(&drafter, shared);
            let lowered = Lowering::assistant(&mut loader, &drafter, ends);
            loader.finish()?;
            let Lowered { program, matrices, .. } = lowered.ok_or_else(no_block)?;
            let processor = Processor { isa: options.isa, matrices, ropes: c.ropes(factors) };
            let part = model.beside(drafter.config, program, processor);
            return Ok(Model::of(Inner { borrowed: Some(model.page_layout()), ..part }));
        }
        let lowered = loader.drafter(&drafter, shared).and_then(|mut ends| {
            let (fuse, norm) = (ends.fuse.clone(), ends.fuse_norm.take());
            Some(match drafter.kind {
                DrafterKind::States { adds_to_norm, .. } => {
                    let reader = Lowering::fusion(&mut loader, &drafter, norm, fuse);
                    [Lowering::drafter(&mut loader, c, ends, adds_to_norm)?, reader]
                }
                _ => {
                    let (block, keys) = Lowering::block_drafter(&mut loader, c, ends)?;
                    [block, Lowering::key_reader(&mut loader, &drafter, (fuse, norm), keys)]
                }
            })
        });
        loader.finish()?;
        let lowered = lowered.ok_or_else(no_block)?;
        let ropes = c.ropes(factors);
        let [block, reader] = lowered.map(|Lowered { program, matrices, .. }| {
            (program, Processor { isa: options.isa, matrices, ropes: ropes.clone() })
        });
        let part = |(program, processor)| model.beside(drafter.config.clone(), program, processor);
        let reader = match drafter.kind {
            DrafterKind::Block(block) => Reader::Keys(Model::of(part(reader)), block),
            _ => Reader::States(Fusion { program: reader.0, processor: reader.1 }),
        };
        Ok(Model::of(Inner { reader: Some(reader), ..part(block) }))
    }
}

impl Model {
    /// Its head for multi-token prediction ([`LoadOptions::mtp`]), the first of several, or the drafter
    /// ([`LoadOptions::drafter`]) that was loaded with it: a model that reads hidden states beside tokens.
    pub fn mtp_head(&self) -> Option<&Model> {
        self.inner.mtp.first()
    }

    /// [`Model::mtp_head`], and heads that draft further tokens.
    pub fn mtp_heads(&self) -> &[Model] {
        &self.inner.mtp
    }

    /// True if a drafter reads the inputs of blocks of the model that it drafts for, and not its hidden states.
    pub fn reads_inputs(&self) -> bool {
        self.inner.reader.is_some()
    }

    /// Elements of what a drafter hears of every token: hidden states, or inputs of blocks side by side.
    pub fn hears(&self) -> usize {
        self.inner.reader.as_ref().map_or(self.reads_hidden(), Reader::inputs)
    }

    /// The numbers that a drafter reads beside tokens, made of rows of what it hears. Runs on the current pool.
    pub(crate) fn fused(&self, heard: &[f32]) -> Vec<f32> {
        match &self.inner.reader {
            Some(Reader::States(fusion)) => fusion.run(heard),
            _ => heard.to_vec(),
        }
    }

    /// The model that stores keys and values of what was heard, in sequences that a drafter of several tokens at once runs
    /// over too, and these tokens; `None` of another model.
    pub fn key_reader(&self) -> Option<(&Model, DraftBlock)> {
        match &self.inner.reader {
            Some(Reader::Keys(model, block)) => Some((model, *block)),
            _ => None,
        }
    }

    /// True if the model has no keys of its own: it attends to those in sequences of the model that it drafts for, to which
    /// its tokens add nothing.
    pub fn borrows_keys(&self) -> bool {
        self.inner.borrowed.is_some()
    }
}
