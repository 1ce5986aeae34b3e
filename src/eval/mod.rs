//! Evaluation of a model on a text: perplexity and Kullback-Leibler divergence.
//!
//! The text's tokens are cut into chunks of `n_ctx`. Each chunk is evaluated in an empty context, its
//! first token replaced by BOS where the vocabulary wants one; the positions of its second half are
//! scored by how well they predict the token that follows. Chunks share nothing and sums run in text
//! order, so no way of batching, and no number of threads, changes a digit.

pub mod base_file;
pub mod imatrix;
pub mod kld;
pub mod perplexity;
mod report;

pub use report::TABLE_HEAD;

use std::error::Error;

use rayon::prelude::*;

use crate::math::expf;
use crate::step::{EvalError as SessionError, Session};
use crate::tokenizer::TokenizerError;

/// What evaluation needs of a model.
pub trait Evaluator {
    /// Logits per position.
    fn n_vocab(&self) -> usize;

    /// Forgets all tokens.
    fn clear(&mut self);

    /// Appends `tokens` and calls `sink(i, logits)` for every index `i >= from` of them, in order.
    ///
    /// # Errors
    /// What the model says; nothing was computed then.
    fn eval(
        &mut self,
        tokens: &[u32],
        from: usize,
        sink: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<(), SessionError>;
}

impl Evaluator for Session {
    fn n_vocab(&self) -> usize {
        self.model().n_vocab()
    }

    fn clear(&mut self) {
        Session::clear(self);
    }

    fn eval(
        &mut self,
        tokens: &[u32],
        from: usize,
        sink: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<(), SessionError> {
        Session::eval(self, tokens, from, sink)
    }
}

/// Why a text cannot be evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The text cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The text is too short.
    #[error(
        "the text is too short: {tokens} tokens, but a context of {n_ctx} needs at least {needed}; use a longer text or a smaller -c"
    )]
    TooShort {
        /// Tokens in the text.
        tokens: usize,
        /// Context size.
        n_ctx: usize,
        /// Tokens needed: two contexts.
        needed: usize,
    },
    /// A context that leaves no position to score.
    #[error("a context of {0} leaves no position to score; use -c 3 or more")]
    SmallContext(usize),
    /// Nothing to do.
    #[error("no chunk is wanted; use --chunks 1 or more")]
    NoChunks,
    /// The model computed a NaN or an infinity.
    #[error(
        "non-finite logits at chunk {chunk}, position {position}: the model's weights are damaged or overflow"
    )]
    NonFinite {
        /// Counted from 1, as in the output.
        chunk: usize,
        /// In the chunk, from 0.
        position: usize,
    },
    /// The model cannot take the tokens.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The base file cannot be written.
    #[error("cannot write the log-probabilities")]
    Write(#[source] std::io::Error),
    /// The base file cannot be read or does not fit.
    #[error(transparent)]
    Base(#[from] base_file::BaseError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What a caller wants to hear: called with the chunks done and all chunks. `Err` stops the run.
pub type Observer<'a, T> = &'a mut dyn FnMut(usize, &T) -> Result<(), Box<dyn Error + Send + Sync>>;

/// A text cut into chunks.
#[derive(Clone, Debug)]
pub struct Chunks {
    tokens: Vec<u32>,
    n_ctx: usize,
    bos: Option<u32>,
    count: usize,
}

impl Chunks {
    /// Cuts `tokens` into chunks of `n_ctx`, at most `limit` of them. `bos`: the token that replaces the
    /// first one of every chunk.
    ///
    /// # Errors
    /// Fewer than two contexts of tokens, or a context too small to score.
    pub fn new(
        tokens: Vec<u32>,
        n_ctx: usize,
        bos: Option<u32>,
        limit: Option<usize>,
    ) -> Result<Chunks, EvalError> {
        if n_ctx < 3 {
            return Err(EvalError::SmallContext(n_ctx));
        }
        let needed = n_ctx.saturating_mul(2);
        if tokens.len() < needed {
            return Err(EvalError::TooShort {
                tokens: tokens.len(),
                n_ctx,
                needed,
            });
        }
        Chunks::unchecked(tokens, n_ctx, bos, limit)
    }

    /// As [`Chunks::new`] for the tokens of a base file, which may be one chunk only.
    fn unchecked(
        tokens: Vec<u32>,
        n_ctx: usize,
        bos: Option<u32>,
        limit: Option<usize>,
    ) -> Result<Chunks, EvalError> {
        let count = (tokens.len() / n_ctx).min(limit.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(EvalError::NoChunks);
        }
        Ok(Chunks {
            tokens,
            n_ctx,
            bos,
            count,
        })
    }

    /// Number of chunks that are evaluated.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Context size.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Tokens of all evaluated chunks, as the text has them.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..self.count * self.n_ctx]
    }

    /// First scored position of a chunk.
    pub fn first(&self) -> usize {
        self.n_ctx / 2
    }

    /// Scored positions per chunk.
    pub fn scored(&self) -> usize {
        self.n_ctx - 1 - self.first()
    }

    /// Tokens of chunk `index`, as the text has them.
    fn text(&self, index: usize) -> &[u32] {
        &self.tokens[index * self.n_ctx..][..self.n_ctx]
    }

    /// Evaluates chunk `index` in batches of at most `n_batch` tokens. `score(i, logits, next)` runs in
    /// parallel for every scored position (`i` counts from 0, `next` is the token that follows it),
    /// `take` gets the results in order.
    fn score<T: Send>(
        &self,
        model: &mut dyn Evaluator,
        index: usize,
        n_batch: usize,
        score: &(dyn Fn(usize, &[f32], u32) -> T + Sync),
        take: &mut (dyn FnMut(T) -> Result<(), EvalError> + Send),
    ) -> Result<(), EvalError> {
        let text = &self.tokens[index * self.n_ctx..][..self.n_ctx];
        let mut chunk = text.to_vec();
        if let Some(bos) = self.bos {
            chunk[0] = bos;
        }
        let (first, last) = (self.first(), self.n_ctx - 1);
        let n_vocab = model.n_vocab();
        let mut rows = Rows::new(n_vocab);
        let mut outcome = Ok(());
        model.clear();
        let n_batch = n_batch.max(1);
        for (batch, tokens) in chunk.chunks(n_batch).enumerate() {
            let start = batch * n_batch;
            let from = first.saturating_sub(start).min(tokens.len());
            model.eval(tokens, from, &mut |i, logits| {
                let position = start + i;
                if outcome.is_err() || position >= last {
                    return;
                }
                rows.push(position, logits);
                if rows.full() || position + 1 == last {
                    outcome = rows
                        .drain(|p, l| {
                            let finite = l.iter().all(|v| v.is_finite());
                            finite.then(|| score(p - first, l, text[p + 1])).ok_or(
                                EvalError::NonFinite {
                                    chunk: index + 1,
                                    position: p,
                                },
                            )
                        })
                        .into_iter()
                        .try_for_each(|one| take(one?));
                }
            })?;
        }
        outcome
    }
}

/// Logits of a few consecutive positions, kept so that they can be scored in parallel.
#[derive(Clone)]
struct Rows {
    n_vocab: usize,
    room: usize,
    first: usize,
    logits: Vec<f32>,
}

impl Rows {
    /// Room for 64 positions, or for what fits into 32 MB.
    fn new(n_vocab: usize) -> Rows {
        let room = ((32 << 20) / (4 * n_vocab.max(1))).clamp(1, 64);
        Rows {
            n_vocab,
            room,
            first: 0,
            logits: Vec::new(),
        }
    }

    fn push(&mut self, position: usize, logits: &[f32]) {
        if self.logits.is_empty() {
            self.first = position;
        }
        self.logits.extend_from_slice(logits);
    }

    fn full(&self) -> bool {
        self.logits.len() >= self.room * self.n_vocab
    }

    fn drain<T: Send>(&mut self, each: impl Fn(usize, &[f32]) -> T + Sync) -> Vec<T> {
        let first = self.first;
        let rows = self.logits.par_chunks(self.n_vocab).enumerate();
        let out = rows.map(|(i, logits)| each(first + i, logits)).collect();
        self.logits.clear();
        out
    }
}

/// The largest logit and the sum of e^(logit - largest), the terms in `f32`, the sum in `f64` in order.
fn max_and_sum(logits: &[f32]) -> (f32, f64) {
    let max = logits.iter().fold(f32::NEG_INFINITY, |m, &l| m.max(l));
    let sum = logits.iter().map(|&l| f64::from(expf(l - max))).sum();
    (max, sum)
}

#[cfg(test)]
mod tests;
