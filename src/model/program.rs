//! The model as a program of a GPU: the same blocks that the CPU runs say operation by operation what they do.
//!
//! Every part of a model names all of its fields where it is recorded, so that one that is new is either recorded or
//! refused by name, and never left out.

use trine_cuda::program::{Limits, ProgramError, Recorder, Span, embeds};

use super::pass::RopeKind;
use super::recording::{Recorded, Recording, Start, missing, refuse, stored};
use super::{Inner, Model};
use crate::kv::CacheTypes;

impl Model {
    /// The blocks from `first` on and the logits as a program of a GPU for passes within `limits`. Their weights have
    /// to be where the file has them ([`super::LoadOptions::repack`]).
    ///
    /// # Errors
    /// The first part of them that no kernel does, by name; sizes that a GPU does not have.
    pub fn record(&self, limits: Limits, first: usize) -> Result<Recorded<'_>, ProgramError> {
        self.inner.record(limits, first)
    }

    /// Cosine and sine of every pair of one of its position embeddings, in a context of `n_ctx` positions.
    pub(crate) fn angles(&self, kind: RopeKind, n_ctx: usize, position: usize) -> Vec<(f32, f32)> {
        self.inner.ropes(n_ctx)[kind as usize].pairs(position)
    }
}

impl Inner {
    fn record(&self, limits: Limits, first: usize) -> Result<Recorded<'_>, ProgramError> {
        let Inner {
            config,
            isa: _,
            layouts: _,
            anyprec,
            widely,
            sections: _,
            embedding: _,
            embedding_low_rank: _,
            positions: _,
            embedding_norm: _,
            output,
            output_norm,
            last_connection: _,
            last_scores: _,
            low_state: _,
            blocks,
            cache,
            added,
            directions: _,
            ropes: _,
            offload: _,
            halves,
        } = self;
        refuse(&[
            (anyprec.is_some(), "any-precision weights"),
            (widely.is_some(), "widely linear weights"),
            (!added.is_empty(), "adapters and control vectors"),
            (config.cycles.is_some(), "blocks that run in cycles"),
            (config.indexed.is_some(), "attention that chooses its cells"),
            (blocks[first..].iter().any(|b| b.skips()), "embeddings that are added behind blocks"),
        ])?;
        if *cache != CacheTypes::HALVES {
            let CacheTypes { keys, values } = cache;
            return missing(format!("keys in {keys} and values in {values}"));
        }
        let mut recorder = Recorder::new(limits, config.n_vocab)?;
        if let Some(pruned) = halves {
            recorder.in_halves(pruned);
        }
        let heads = [config.n_head, config.n_head_kv];
        let sizes = [config.head_dim, config.value_dim];
        let mut gpu = Recording::new(recorder, heads, sizes, self.ropes(limits.context));
        let (x, start) = self.record_start(first, &mut gpu)?;
        for block in &blocks[first..] {
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
        let (recorder, angles) = gpu.end();
        let (program, weights) = recorder.finish(logits)?;
        Ok(Recorded { program, weights, start, angles })
    }

    /// What goes into the first block: embeddings that the GPU decodes, or what the processor gives where there are
    /// blocks before, where its rows are of a type that no kernel decodes, or where more than a factor is applied to
    /// them.
    fn record_start<'a>(&'a self, first: usize, gpu: &mut Recording<'a>) -> Result<(Span, Start), ProgramError> {
        let plain = self.positions.is_none() && self.embedding_low_rank.is_empty();
        let norm = self.embedding_norm.as_ref();
        if first > 0 || !plain || !embeds(self.embedding.ty) || norm.is_some() {
            return Ok((gpu.recorder.given(self.config.n_embd)?, Start::Rows));
        }
        let x = gpu.recorder.embed(stored("token_embd.weight", &self.embedding)?)?;
        if let Some(scale) = self.config.embedding_scale {
            gpu.recorder.scale(x, scale);
        }
        Ok((x, Start::Tokens))
    }
}
