//! The model as a program of a GPU: the same blocks that the CPU runs say operation by operation what they do.
//!
//! Every part of a model names all of its fields where it is recorded, so that one that is new is either recorded or
//! refused by name, and never left out.

use trine_cuda::program::{Limits, Program, ProgramError, Recorder, Weights};

use super::recording::{Recording, missing, refuse, stored};
use super::{Inner, Model};
use crate::kv::CacheTypes;
use crate::ops::rope::Rope;

/// A model as a program, the weights that it wants, and the angles of its positions.
pub struct Recorded<'a> {
    /// The program.
    pub program: Program,
    /// Its weights, laid out when they are asked for.
    pub weights: Vec<Weights<'a>>,
    /// The position embedding of each of the program's tables.
    pub angles: Angles,
}

/// The position embeddings of a program's tables.
#[derive(Clone, Debug)]
pub struct Angles(Vec<Rope>);

impl Angles {
    /// Cosine and sine of every pair of table `kind` at a position; none of a table that is not there.
    pub fn at(&self, kind: usize, position: usize) -> Vec<(f32, f32)> {
        self.0
            .get(kind)
            .map_or_else(Vec::new, |r| r.pairs(position))
    }
}

impl Model {
    /// The model as a program of a GPU for passes within `limits`. Its weights have to be where the file has them
    /// ([`super::LoadOptions::repack`]).
    ///
    /// # Errors
    /// The first part of the model that no kernel does, by name; sizes that a GPU does not have.
    pub fn record(&self, limits: Limits) -> Result<Recorded<'_>, ProgramError> {
        self.inner.record(limits)
    }
}

impl Inner {
    fn record(&self, limits: Limits) -> Result<Recorded<'_>, ProgramError> {
        let Inner {
            config,
            isa: _,
            layouts: _,
            anyprec,
            widely,
            sections: _,
            embedding,
            embedding_low_rank,
            positions,
            embedding_norm,
            output,
            output_norm,
            low_state: _,
            blocks,
            cache,
            added,
            directions: _,
            ropes: _,
        } = self;
        refuse(&[
            (anyprec.is_some(), "any-precision weights"),
            (widely.is_some(), "widely linear weights"),
            (!added.is_empty(), "adapters and control vectors"),
            (!embedding_low_rank.is_empty(), "adapters of embeddings"),
            (positions.is_some(), "embeddings of positions"),
            (config.cycles.is_some(), "blocks that run in cycles"),
            (config.final_softcap.is_some(), "bounds of the logits"),
            (config.indexed.is_some(), "attention that chooses its cells"),
            (
                blocks.iter().any(|b| b.skips()),
                "embeddings that are added behind blocks",
            ),
        ])?;
        if *cache != CacheTypes::HALVES {
            let CacheTypes { keys, values } = cache;
            return missing(format!("keys in {keys} and values in {values}"));
        }
        let recorder = Recorder::new(limits, config.n_vocab)?;
        let heads = [config.n_head, config.n_head_kv];
        let sizes = [config.head_dim, config.value_dim];
        let mut gpu = Recording::new(recorder, heads, sizes, self.ropes(limits.context));
        let x = gpu
            .recorder
            .embed(stored("token_embd.weight", embedding)?)?;
        if let Some(scale) = config.embedding_scale {
            gpu.recorder.scale(x, scale);
        }
        gpu.norm_in_place(embedding_norm.as_ref(), x)?;
        for block in blocks {
            block.record(x, &mut gpu)?;
        }
        let x = gpu.recorder.take_wanted(x)?;
        let u = gpu.norm(Some(output_norm), x)?;
        if let Some(scale) = config.output_scale {
            gpu.recorder.scale(u, scale);
        }
        let logits = output.record(u, &mut gpu)?;
        if let Some(scale) = config.logit_scale {
            gpu.recorder.scale(logits, scale);
        }
        let (recorder, ropes) = gpu.end();
        let (program, weights) = recorder.finish(logits)?;
        Ok(Recorded {
            program,
            weights,
            angles: Angles(ropes),
        })
    }
}
