//! Evaluation of a model on a text: perplexity and Kullback-Leibler divergence; and on tasks with choices ([`tasks`]).
//!
//! The text's tokens are cut into chunks of `n_ctx`. Each chunk is evaluated in an empty context, its
//! first token replaced by BOS where the vocabulary wants one; the positions of its second half are
//! scored by how well they predict the token that follows. Chunks share nothing and sums run in text
//! order, so no way of batching, and no number of threads, changes a digit.

pub mod base_file;
mod evaluator;
pub mod hessian;
pub mod imatrix;
pub mod kld;
pub mod perplexity;
mod report;
pub mod tasks;

pub use report::TABLE_HEAD;

use std::error::Error;
use std::ops::ControlFlow;

use crate::math::{expf, log};
use crate::pool;
use crate::step::StepError;
use crate::tokenizer::TokenizerError;

pub use evaluator::{Batching, Evaluator, Logits, SideBySide};

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
    #[error("non-finite logits at chunk {chunk}, position {position}: the model's weights are damaged or overflow")]
    NonFinite {
        /// Counted from 1, as in the output.
        chunk: usize,
        /// In the chunk, from 0.
        position: usize,
    },
    /// The model cannot take the tokens.
    #[error(transparent)]
    Step(StepError),
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

impl From<StepError> for EvalError {
    fn from(e: StepError) -> EvalError {
        match e {
            StepError::Cancelled => EvalError::Interrupted,
            e => EvalError::Step(e),
        }
    }
}

/// What a caller wants to hear: called with the chunks done and all chunks. `Err` stops the run.
pub type Observer<'a, T> = &'a mut (dyn FnMut(usize, &T) -> Result<(), Box<dyn Error + Send + Sync>> + Send);

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
    pub fn new(tokens: Vec<u32>, n_ctx: usize, bos: Option<u32>, limit: Option<usize>) -> Result<Chunks, EvalError> {
        if n_ctx < 3 {
            return Err(EvalError::SmallContext(n_ctx));
        }
        let needed = n_ctx.saturating_mul(2);
        if tokens.len() < needed {
            return Err(EvalError::TooShort { tokens: tokens.len(), n_ctx, needed });
        }
        Chunks::unchecked(tokens, n_ctx, bos, limit)
    }

    /// As [`Chunks::new`] for the tokens of a base file, which may be one chunk only.
    fn unchecked(tokens: Vec<u32>, n_ctx: usize, bos: Option<u32>, limit: Option<usize>) -> Result<Chunks, EvalError> {
        let count = (tokens.len() / n_ctx).min(limit.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(EvalError::NoChunks);
        }
        Ok(Chunks { tokens, n_ctx, bos, count })
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

    /// Tokens of chunk `index`, as the model gets them.
    fn context(&self, index: usize) -> Vec<u32> {
        let mut tokens = self.text(index).to_vec();
        if let Some(bos) = self.bos {
            tokens[0] = bos;
        }
        tokens
    }

    /// Evaluates all chunks, as many side by side as `model` takes, and scores their positions in text order.
    fn score<S: Scorer>(&self, model: &mut dyn Evaluator, scorer: &mut S) -> Result<(), EvalError> {
        let mut rows = Rows::new(model.n_vocab());
        let side_by_side = model.side_by_side().max(1);
        for start in (0..self.count).step_by(side_by_side) {
            let group = start..(start + side_by_side).min(self.count);
            let texts: Vec<Vec<u32>> = group.map(|index| self.context(index)).collect();
            let mut scored = Ok(());
            let evaluated = model.eval(&texts, self.first(), &mut |text, position, logits| {
                scored = self.score_position(start + text, position, logits, &mut rows, scorer);
                match scored {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            });
            scored?;
            evaluated?;
        }
        Ok(())
    }

    /// Takes the logits at a position of chunk `index`; they are scored once `rows` are full or the chunk ends.
    fn score_position<S: Scorer>(
        &self,
        index: usize,
        position: usize,
        logits: &[f32],
        rows: &mut Rows,
        scorer: &mut S,
    ) -> Result<(), EvalError> {
        let (first, last) = (self.first(), self.n_ctx - 1);
        if position >= last {
            return Ok(());
        }
        if position == first {
            scorer.begin()?;
        }
        rows.push(position, logits);
        if !rows.full() && position + 1 < last {
            return Ok(());
        }
        let (text, shared) = (self.text(index), scorer.shared());
        let scores = rows.drain(|position, logits| {
            if logits.iter().all(|v| v.is_finite()) {
                Ok(S::score(shared, position - first, logits, text[position + 1]))
            } else {
                let chunk = index + 1;
                Err(EvalError::NonFinite { chunk, position })
            }
        });
        for score in scores {
            scorer.take(score?)?;
        }
        if position + 1 == last {
            scorer.end(index + 1)?;
        }
        Ok(())
    }
}

/// What is done with the scored positions of the chunks, one chunk after the other.
trait Scorer: Send {
    /// What scoring needs to know.
    type Shared: Sync;
    /// What a position gives.
    type Score: Send;

    /// The next chunk begins.
    fn begin(&mut self) -> Result<(), EvalError>;

    /// What [`Scorer::score`] gets in this chunk.
    fn shared(&self) -> &Self::Shared;

    /// The scored position number `i` of the chunk, counted from 0, where the text goes on with `next`. Runs in
    /// parallel.
    fn score(shared: &Self::Shared, i: usize, logits: &[f32], next: u32) -> Self::Score;

    /// The scores, in order.
    fn take(&mut self, score: Self::Score) -> Result<(), EvalError>;

    /// The chunk is over, the `done`th.
    fn end(&mut self, done: usize) -> Result<(), EvalError>;
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
        Rows { n_vocab, room, first: 0, logits: Vec::new() }
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

    /// Forgets the rows; what `each` made of them, in order, with the threads of the current pool.
    fn drain<T: Send>(&mut self, each: impl Fn(usize, &[f32]) -> T + Sync) -> Vec<T> {
        let (first, rows) = (self.first, &self.logits);
        let mut out: Vec<Option<T>> = Vec::new();
        out.resize_with(rows.len() / self.n_vocab, || None);
        pool::chunks_mut(&mut out, 1, |i, slot| {
            slot[0] = Some(each(first + i, &rows[i * self.n_vocab..][..self.n_vocab]));
        });
        self.logits.clear();
        out.into_iter().flatten().collect()
    }
}

/// The largest logit and the sum of e^(logit - largest), the terms in `f32`, the sum in `f64` in order.
fn max_and_sum(logits: &[f32]) -> (f32, f64) {
    let max = logits.iter().fold(f32::NEG_INFINITY, |m, &l| m.max(l));
    let sum = logits.iter().map(|&l| f64::from(expf(l - max))).sum();
    (max, sum)
}

/// The logarithms of the probabilities of all tokens, of one row of logits: differences in `f32`, the logarithm of
/// their sum in `f64`, as llama-perplexity has them.
pub struct LogProbabilities<'a> {
    logits: &'a [f32],
    max: f32,
    log_sum: f64,
}

impl<'a> LogProbabilities<'a> {
    /// Those of a row of logits, of which there is at least one.
    pub fn new(logits: &'a [f32]) -> LogProbabilities<'a> {
        let (max, sum) = max_and_sum(logits);
        LogProbabilities { logits, max, log_sum: log(sum) }
    }

    /// That of a token.
    ///
    /// # Panics
    /// When there is no such token.
    pub fn of(&self, id: u32) -> f64 {
        f64::from(self.logits[id as usize] - self.max) - self.log_sum
    }
}

#[cfg(test)]
mod tests;
