//! Scores of positions: log-probabilities from logits.

use std::error::Error;

use super::error::EvalError;
use crate::math::{expf, log};
use crate::pool;

/// A caller's function, called with the chunks done and all chunks. `Err` stops the run.
pub type Observer<'a, T> = &'a mut (dyn FnMut(usize, &T) -> Result<(), Box<dyn Error + Send + Sync>> + Send);

/// Scores the positions of the chunks, one chunk after the other.
pub(super) trait Scorer: Send {
    /// Data that scoring reads.
    type Shared: Sync;
    /// Score of a position.
    type Score: Send;

    /// The next chunk begins.
    fn begin(&mut self) -> Result<(), EvalError>;

    /// The data that [`Scorer::score`] reads in this chunk.
    fn shared(&self) -> &Self::Shared;

    /// The score of position number `i` of the chunk, counted from 0 among the scored ones, whose next token is `next`.
    /// Runs in parallel.
    fn score(shared: &Self::Shared, i: usize, logits: &[f32], next: u32) -> Self::Score;

    /// The scores, in order.
    fn take(&mut self, score: Self::Score) -> Result<(), EvalError>;

    /// The chunk is over, the `done`th.
    fn end(&mut self, done: usize) -> Result<(), EvalError>;
}

/// Logits of a few consecutive positions, kept so that they can be scored in parallel.
#[derive(Clone)]
pub(super) struct LogitRows {
    pub(super) n_vocab: usize,
    pub(super) room: usize,
    pub(super) first: usize,
    pub(super) logits: Vec<f32>,
}

impl LogitRows {
    /// Room for 64 positions, or for what fits into 32 MB.
    pub(super) fn new(n_vocab: usize) -> LogitRows {
        let room = ((32 << 20) / (4 * n_vocab.max(1))).clamp(1, 64);
        LogitRows { n_vocab, room, first: 0, logits: Vec::new() }
    }

    pub(super) fn push(&mut self, position: usize, logits: &[f32]) {
        if self.logits.is_empty() {
            self.first = position;
        }
        self.logits.extend_from_slice(logits);
    }

    pub(super) fn full(&self) -> bool {
        self.logits.len() >= self.room * self.n_vocab
    }

    /// Forgets the rows; what `each` made of them, in order, with the threads of the current pool.
    pub(super) fn drain<T: Send>(&mut self, each: impl Fn(usize, &[f32]) -> T + Sync) -> Vec<T> {
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
pub(super) fn max_and_sum(logits: &[f32]) -> (f32, f64) {
    let max = logits.iter().fold(f32::NEG_INFINITY, |m, &l| m.max(l));
    let sum = logits.iter().map(|&l| f64::from(expf(l - max))).sum();
    (max, sum)
}

/// The logarithms of the probabilities of all tokens, of one row of logits: differences in `f32`, the logarithm of
/// their sum in `f64`, as llama-perplexity has them.
pub struct LogProbabilities<'a> {
    pub(super) logits: &'a [f32],
    pub(super) max: f32,
    pub(super) log_sum: f64,
}

impl<'a> LogProbabilities<'a> {
    /// Log-probabilities of a row of at least one logit.
    pub fn new(logits: &'a [f32]) -> LogProbabilities<'a> {
        let (max, sum) = max_and_sum(logits);
        LogProbabilities { logits, max, log_sum: log(sum) }
    }

    /// Log-probability of a token.
    ///
    /// # Panics
    /// When there is no such token.
    pub fn of(&self, id: u32) -> f64 {
        f64::from(self.logits[id as usize] - self.max) - self.log_sum
    }
}
