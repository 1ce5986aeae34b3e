//! From the pooled states of a text to its vector, or to the outputs of the head of a ranking model.

use super::config::Config;
use super::load::Loader;
use super::lower::{Lowered, Lowering};
use crate::arch::Pooling;
use crate::exec::{PassOptions, Processor, Ropes};
use crate::kernels::Isa;
use crate::program::{Program, Setting};

/// A small program and its weights.
struct Head {
    program: Program,
    processor: Processor,
}

/// The programs behind the pooling that a model has.
#[derive(Default)]
pub(super) struct Heads {
    projections: Option<Head>,
    rank: Option<Head>,
}

/// The programs behind the pooling that a model has, before it is known where they run.
pub(super) struct LoweredHeads([Option<Lowered>; 2]);

impl LoweredHeads {
    /// Takes what a model of configuration `c` has of them.
    pub fn load(loader: &mut Loader<'_>, c: &Config) -> LoweredHeads {
        LoweredHeads([Lowering::vector_projections(loader, c), Lowering::rank_head(loader, c)])
    }

    /// Ready to run.
    pub fn ready(self, isa: Isa, ropes: &Ropes) -> Heads {
        let ready = |lowered: Lowered| Head {
            program: lowered.program,
            processor: Processor { isa, matrices: lowered.matrices, ropes: ropes.clone() },
        };
        let [projections, rank] = self.0.map(|lowered| lowered.map(ready));
        Heads { projections, rank }
    }
}

impl Head {
    /// Its outputs for `row`.
    fn run(&self, setting: &Setting, row: &[f32]) -> Vec<f32> {
        let mut outputs = Vec::new();
        let sink = &mut |_: usize, row: &[f32]| outputs.extend_from_slice(row);
        let options = PassOptions { setting: setting.clone(), ..PassOptions::default() };
        self.processor.logits(&self.program, row, &options, sink);
        outputs
    }
}

impl Heads {
    /// True if there is a head that ranks texts.
    pub fn ranks(&self) -> bool {
        self.rank.is_some()
    }

    /// The steps behind the pooling: the projections on a vector, and for [`Pooling::Rank`] the first `classes` outputs
    /// of the head; `pooled` itself where there is neither.
    pub fn run(&self, pooling: Pooling, setting: &Setting, pooled: &[f32], classes: usize) -> Vec<f32> {
        if let (Pooling::Rank, Some(rank)) = (pooling, &self.rank) {
            let mut outputs = rank.run(setting, pooled);
            outputs.truncate(classes);
            return outputs;
        }
        match &self.projections {
            Some(projections) => projections.run(setting, pooled),
            None => pooled.to_vec(),
        }
    }
}
