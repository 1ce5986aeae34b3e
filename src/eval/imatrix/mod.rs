//! Importance matrices: sums of squared activations per input column of every weight matrix.
//!
//! A sum is one `f32` chain, `s += x * x` with the product rounded, over the rows in the order in which
//! llama-imatrix meets them, so that the sums have its bits. That order depends on how it batches: as
//! many chunks as fit into a batch run side by side, and every micro-batch holds the next few tokens of
//! each of them, one chunk after the other. [`Schedule`] says which. Micro-batches of fewer than 16
//! tokens do not count, except for the matrices of experts: these count every token that is sent to them.

mod collector;
mod error;
mod schedule;

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use trine_formats::imatrix::Imatrix;

use super::Chunks;
use super::perplexity::{Estimate, nll};
use super::score::LogitRows;
use collector::Collector;
use schedule::{MIN_ROWS, Part, rows};

pub use error::CollectError;
pub use schedule::Schedule;

use crate::model::Weights;
use crate::ops::observe::ActivationObserver;
use crate::step::{Engine, Segment, Sequence, StepError, StepOptions};

/// Notifications of a run.
pub trait Watch {
    /// `tokens` more are evaluated. `false` stops the run, and what came after the last group is lost.
    fn tokens(&mut self, tokens: usize) -> bool;

    /// `done` chunks are done, and `matrix` holds exactly these. `running`: the perplexity of the chunks
    /// of this run after each chunk of the group; empty where it was not asked for.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn group(
        &mut self,
        done: usize,
        matrix: &Imatrix,
        running: &[Estimate],
    ) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// True if `output.weight` is observed too.
    pub output: bool,
    /// Measure the perplexity on the way.
    pub perplexity: bool,
}

/// Bytes of keys and values that [`collect`] needs an engine for.
pub fn cache_bytes(model: &Weights, chunks: &Chunks, schedule: &Schedule) -> usize {
    let layout = model.page_layout();
    let pages = chunks.n_ctx().div_ceil(layout.positions);
    schedule.side_by_side().min(chunks.count()) * pages * layout.bytes()
}

/// Evaluates all chunks from number `done` on and adds the squares of what goes into the matrices of the
/// blocks to `matrix`, whose data sets the caller has set.
///
/// # Errors
/// A matrix of another model, non-finite activations, and what `watch` says.
pub fn collect(
    engine: &Engine,
    chunks: &Chunks,
    schedule: &Schedule,
    options: Options,
    matrix: Imatrix,
    done: usize,
    watch: &mut dyn Watch,
) -> Result<Imatrix, CollectError> {
    let collector = Arc::new(Collector::new(matrix, options.output));
    let side_by_side = schedule.side_by_side();
    let mut sequences: Vec<Sequence> = (0..side_by_side.min(chunks.count())).map(|_| engine.sequence()).collect();
    let mut estimate = Estimate::default();
    for first in (done..chunks.count()).step_by(side_by_side) {
        let group = first..(first + side_by_side).min(chunks.count());
        let mut scores = vec![Scores::new(engine.model().n_vocab()); group.len()];
        sequences.iter_mut().for_each(|seq| {
            seq.truncate(0);
        });
        for pass in schedule.passes(group.len()) {
            collector.lock().counts_plain = rows(&pass) >= MIN_ROWS;
            let observer: Arc<dyn ActivationObserver> = collector.clone();
            let step = StepOptions {
                observer: Some(observer),
                // The pass is one of the reference's, and must stay whole.
                n_ubatch: usize::MAX,
                ..StepOptions::default()
            };
            evaluate(engine, &mut sequences, chunks, &group, &pass, (&step, options), &mut scores)?;
            if !watch.tokens(rows(&pass)) {
                return Err(CollectError::Interrupted);
            }
        }
        let add = |scores: &Scores| {
            scores.add_to(&mut estimate);
            estimate
        };
        let running: Vec<Estimate> = if options.perplexity { scores.iter().map(add).collect() } else { Vec::new() };
        let mut state = collector.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let matrix = &mut state.matrix;
        if let Some(tensor) = non_finite(matrix) {
            return Err(CollectError::NonFinite { tensor, first: group.start + 1, last: group.end });
        }
        matrix.count_chunks()?;
        let heard = watch.group(group.end, matrix, &running);
        heard.map_err(CollectError::Watch)?;
    }
    Ok(std::mem::take(&mut collector.lock().matrix))
}

fn non_finite(matrix: &Imatrix) -> Option<String> {
    let mut entries = matrix.entries.iter();
    let bad = entries.find(|(_, e)| !e.sums.iter().all(|s| s.is_finite()));
    bad.map(|(name, _)| name.clone())
}

/// Evaluates one pass of a group of chunks and scores its positions, where that is wanted.
fn evaluate(
    engine: &Engine,
    sequences: &mut [Sequence],
    chunks: &Chunks,
    group: &Range<usize>,
    pass: &[Part],
    (step, options): (&StepOptions, Options),
    scores: &mut [Scores],
) -> Result<(), StepError> {
    let tokens: Vec<Vec<u32>> = pass
        .iter()
        .map(|part| {
            let mut tokens = chunks.text(group.start + part.chunk)[part.tokens.clone()].to_vec();
            if let (Some(bos), 0) = (chunks.bos, part.tokens.start) {
                tokens[0] = bos;
            }
            tokens
        })
        .collect();
    let first = chunks.first();
    // The parts of a pass are of ascending chunks.
    let mut free = sequences.iter_mut().enumerate();
    let mut segments = Vec::with_capacity(pass.len());
    for (part, tokens) in pass.iter().zip(&tokens) {
        let Some((_, seq)) = free.find(|(chunk, _)| *chunk == part.chunk) else {
            continue;
        };
        segments.push(Segment {
            seq,
            tokens,
            logits_from: match options {
                Options { output: true, .. } => 0,
                Options { perplexity: true, .. } => first.saturating_sub(part.tokens.start).min(tokens.len()),
                _ => tokens.len(),
            },
        });
    }
    engine.step(&mut segments, step, &mut |segment, i, logits| {
        let part = &pass[segment];
        if options.perplexity {
            let text = chunks.text(group.start + part.chunk);
            scores[part.chunk].take(chunks, text, part, part.tokens.start + i, logits);
        }
    })
}

/// The likelihoods of one chunk.
#[derive(Clone)]
struct Scores {
    rows: LogitRows,
    nlls: Vec<f64>,
}

impl Scores {
    fn new(n_vocab: usize) -> Scores {
        Scores { rows: LogitRows::new(n_vocab), nlls: Vec::new() }
    }

    /// Scores a position of the chunk `text`, if it is one that is scored; its logits came with those of `part`.
    fn take(&mut self, chunks: &Chunks, text: &[u32], part: &Part, position: usize, logits: &[f32]) {
        let last = chunks.n_ctx - 1;
        if position < chunks.first() || position >= last {
            return;
        }
        self.rows.push(position, logits);
        if self.rows.full() || position + 1 == last || position + 1 == part.tokens.end {
            let nlls = self.rows.drain(|p, l| nll(l, text[p + 1]));
            self.nlls.extend(nlls);
        }
    }

    fn add_to(&self, total: &mut Estimate) {
        let mut chunk = Estimate::default();
        self.nlls.iter().for_each(|&v| chunk.push(v));
        total.add(&chunk);
    }
}
