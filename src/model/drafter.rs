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
use crate::ops::matmul::Matrix;
use crate::program::Program;

/// The projection of rows that are given to others: of inputs of a model's blocks to the states that a drafter reads, or of
/// tokens' vectors to biases on logits.
pub(super) struct Fusion {
    pub program: Program,
    pub processor: Processor,
}

impl Fusion {
    /// Elements of a given row.
    pub fn inputs(&self) -> usize {
        self.program.shape(self.program.taken()).columns
    }

    /// The projections of rows. Runs on the current pool.
    pub fn run(&self, inputs: &[f32]) -> Vec<f32> {
        let mut states = Vec::new();
        let sink = &mut |_: usize, row: &[f32]| states.extend_from_slice(row);
        self.processor.logits(&self.program, inputs, &PassOptions::default(), sink);
        states
    }
}

/// Biases on the logits of a drafted token, by the token before it (DSpark's Markov head).
pub(super) struct Markov {
    /// A vector for every token.
    table: Matrix,
    /// From such a vector to a bias on every logit.
    biases: Fusion,
}

impl Markov {
    /// The biases behind `token`, one for every token. Runs on the current pool.
    pub fn run(&self, token: u32) -> Vec<f32> {
        let mut vector = vec![0f32; self.table.cols];
        let decode = self.table.ty.info().and_then(|t| t.decode).expect("checked when loading");
        decode(self.table.row(token as usize), &mut vector);
        self.biases.run(&vector)
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
    /// Biases on its logits, where it has any.
    pub markov: Option<Markov>,
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
        let (block, reader, markov) = lowered.ok_or_else(|| ModelError::Drafter("it has no block".to_owned()))?;
        let ropes = c.ropes(factors);
        let ready = |Lowered { program, matrices, .. }: Lowered| {
            (program, Processor { isa: options.isa, matrices, ropes: ropes.clone() })
        };
        let markov = markov.map(|(table, biases)| {
            let (program, processor) = ready(biases);
            Markov { table, biases: Fusion { program, processor } }
        });
        let (block, reader) = (ready(block), reader.map(ready));
        Ok(LoadedDrafter { kind: drafter.kind, config: drafter.config, block, reader, markov })
    }
}

/// The programs of the blocks of a drafter and of what reads inputs of the model's for it, where anything does, and tokens'
/// vectors and the program that makes biases of them.
type Programs = (Lowered, Option<Lowered>, Option<(Matrix, Lowered)>);

/// The programs of a drafter. `None` where a tensor is missing, which is noted.
fn lowered(loader: &mut Loader<'_>, drafter: &Drafter, shared: SharedEnds) -> Option<Programs> {
    let c = &drafter.config;
    if let DrafterKind::Assistant = drafter.kind {
        let ends = loader.assistant(drafter, shared);
        return Some((Lowering::assistant(loader, drafter, ends)?, None, None));
    }
    let mut ends = loader.drafter(drafter, shared)?;
    let (fuse, norm) = (ends.fuse.clone(), ends.fuse_norm.take());
    match drafter.kind {
        DrafterKind::States { adds_to_norm, .. } => {
            let reader = Lowering::fusion(loader, drafter, norm, fuse);
            Some((Lowering::drafter(loader, c, ends, adds_to_norm)?, Some(reader), None))
        }
        _ => {
            let markov = ends.markov.take().map(|(table, biases)| {
                let tokens = ends.tokens.clone();
                (table, Lowering::biases(loader, c, (biases, tokens)))
            });
            let (block, keys) = Lowering::block_drafter(loader, c, ends)?;
            Some((block, Some(Lowering::key_reader(loader, drafter, (fuse, norm), keys)), markov))
        }
    }
}
