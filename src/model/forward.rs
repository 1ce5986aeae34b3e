//! From tokens to the residual stream, and from there to logits.

use super::config::Cycles;
use super::pass::{Pass, PassOptions};
use super::{Inner, Model, streams};
use crate::kernels::Floats;
use crate::kv;
use crate::math::tanhf;
use crate::ops;
use crate::ops::matmul::{Activations, Matrix};

/// Positions whose logits are computed together: enough to share the reading of the output matrix,
/// few enough that a vocabulary of 262144 takes 32 MB.
const LOGITS_AT_ONCE: usize = 32;

/// The pass was ended between two layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl Model {
    /// Runs all blocks that are not on a GPU over one pass, whose `tokens` are those of the rows of `parts`; the
    /// residual stream, `[tokens][n_embd]`. Keys and values are stored; the sequences' lengths are the caller's to
    /// advance.
    ///
    /// Runs on the current pool.
    ///
    /// # Errors
    /// The pass was cancelled.
    pub(crate) fn residual(
        &self,
        tokens: &[u32],
        parts: &mut [kv::Rows<'_>],
        options: &PassOptions,
    ) -> Result<Vec<f32>, Cancelled> {
        let positions: Vec<usize> = parts.iter().flat_map(|p| p.positions()).collect();
        let mut x = self.inner.embed(tokens, &positions);
        let skips = self.inner.blocks.iter().any(|block| block.skips());
        let embeddings = skips.then(|| x.clone());
        let mut pass = Pass::new(&self.inner, parts, options);
        if let Some(streams) = self.inner.config.streams {
            x = streams::open(&x, self.inner.config.n_embd, streams.count);
        }
        if let Some(cycles) = self.inner.config.cycles {
            return self.inner.cycle(x, cycles, &mut pass);
        }
        let blocks = &self.inner.blocks[..self.inner.here()];
        for (number, block) in blocks.iter().enumerate() {
            if pass.is_cancelled() {
                return Err(Cancelled);
            }
            block.run(&mut x, &mut pass);
            if let Some(embeddings) = &embeddings {
                block.add_skip(&mut x, embeddings);
            }
            self.inner.steer(&mut x, number);
        }
        if let Some(connection) = &self.inner.last_connection {
            x = connection.read(&x, &pass).0;
        }
        if let Some(scores) = &self.inner.last_scores {
            x = scores.mix(self.inner.isa, &pass.kept, &x);
        }
        Ok(x)
    }

    /// The hidden states of the rows of `x`: the residual stream behind the last norm, which the logits are made of.
    pub(crate) fn hidden(&self, x: &[f32]) -> Floats {
        self.inner.output_norm.apply(self.inner.isa, x)
    }

    /// Bounds logits that were computed elsewhere, where the model has a bound.
    pub(crate) fn bound(&self, logits: &mut [f32]) {
        self.inner.bound(logits);
    }

    /// Calls `sink` with the number and the logits of every row of `x`, in order.
    pub(crate) fn logits(&self, x: &[f32], options: &PassOptions, sink: &mut dyn FnMut(usize, &[f32])) {
        self.inner.logits(x, options, sink);
    }
}

impl Inner {
    /// Stacks of blocks in cycles. After every stack its stream is normed, the last time by the norm before the logits.
    fn cycle(&self, mut high: Vec<f32>, cycles: Cycles, pass: &mut Pass<'_, '_>) -> Result<Vec<f32>, Cancelled> {
        let mut low = self.low_state.repeat(high.len() / self.config.n_embd);
        let runs = self.blocks.len() / cycles.stack;
        for (run, stack) in self.blocks.chunks(cycles.stack).enumerate() {
            let mut x = high.clone();
            ops::add(&mut x, &low);
            for (i, block) in stack.iter().enumerate() {
                if pass.is_cancelled() {
                    return Err(Cancelled);
                }
                block.run(&mut x, pass);
                self.steer(&mut x, run * cycles.stack + i);
            }
            if run + 1 < runs {
                self.output_norm.apply_in_place(self.isa, &mut x);
            }
            match cycles.is_high(run) {
                true => high = x,
                false => low = x,
            }
        }
        Ok(high)
    }

    /// Adds the direction of block `number` to the residual stream behind it.
    fn steer(&self, x: &mut [f32], number: usize) {
        let direction = &self.directions[number];
        if !direction.is_empty() {
            ops::add_rows(x, direction);
        }
    }

    /// What goes into the first block: decoded embedding rows, and what becomes of them.
    fn embed(&self, tokens: &[u32], positions: &[usize]) -> Vec<f32> {
        let tokens = tokens.iter().map(|&id| id as usize);
        let mut x = decoded(&self.embedding, tokens.clone());
        for low_rank in &self.embedding_low_rank {
            let low = decoded(&low_rank.a, tokens.clone());
            low_rank.add_from(self.isa, &low, &mut x);
        }
        if let Some(scale) = self.config.embedding_scale {
            ops::scale(&mut x, scale);
        }
        if let Some(table) = &self.positions {
            ops::add(&mut x, &decoded(table, positions.iter().copied()));
        }
        if let Some(norm) = &self.embedding_norm {
            norm.apply_in_place(self.isa, &mut x);
        }
        x
    }

    /// The last step of logits.
    fn bound(&self, logits: &mut [f32]) {
        if let Some(cap) = self.config.final_softcap {
            logits.iter_mut().for_each(|v| *v = tanhf(*v * (1.0 / cap)) * cap);
        }
    }

    fn logits(&self, x: &[f32], options: &PassOptions, sink: &mut dyn FnMut(usize, &[f32])) {
        let n = self.config.n_embd;
        for (block, x) in x.chunks(LOGITS_AT_ONCE * n).enumerate() {
            let mut u = self.output_norm.apply(self.isa, x);
            if let Some(scale) = self.config.output_scale {
                ops::scale(&mut u, scale);
            }
            let acts = Activations::new(&u, n, self.isa).at_width(options.bits).observed_by(options.observer.clone());
            let mut logits = self.output.apply(&acts);
            if let Some(scale) = self.config.logit_scale {
                ops::scale(&mut logits, scale);
            }
            self.bound(&mut logits);
            for (i, row) in logits.chunks_exact(self.config.n_vocab).enumerate() {
                sink(block * LOGITS_AT_ONCE + i, row);
            }
        }
    }
}

/// Rows of a table, as they are in its file, decoded.
fn decoded(table: &Matrix, rows: impl ExactSizeIterator<Item = usize>) -> Vec<f32> {
    let n = table.cols;
    let decode = table.ty.info().and_then(|t| t.decode);
    let decode = decode.expect("checked when loading");
    let mut x = vec![0f32; rows.len() * n];
    for (row, number) in x.chunks_exact_mut(n).zip(rows) {
        decode(table.row(number), row);
    }
    x
}
