//! Importance matrices: sums of squared activations per input column of every weight matrix.
//!
//! A sum is one `f32` chain, `s += x * x` with the product rounded, over the rows in the order in which
//! llama-imatrix meets them, so that the sums have its bits. That order depends on how it batches: as
//! many chunks as fit into a batch run side by side, and every micro-batch holds the next few tokens of
//! each of them, one chunk after the other. [`Schedule`] says which. Micro-batches of fewer than 16
//! tokens do not count.

use std::error::Error;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use trine_formats::imatrix::{Entry, Imatrix, ImatrixError};

use super::perplexity::{Estimate, nll};
use super::{Chunks, Rows};
use crate::model::Model;
use crate::ops::observe::ActivationObserver;
use crate::step::{Engine, Segment, Sequence, StepError, StepOptions};

/// Tokens that a micro-batch must have to count.
const MIN_ROWS: usize = 16;

/// Chunks that may run side by side; llama.cpp's limit.
const MAX_SIDE_BY_SIDE: usize = 256;

/// Why no matrix can be collected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    /// The model cannot take the tokens.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A batch of very many very small chunks.
    #[error(
        "a batch of {n_batch} tokens holds {chunks} chunks of {n_ctx}, at most {MAX_SIDE_BY_SIDE} can run side by side; use a smaller -b"
    )]
    SideBySide {
        /// Tokens in a batch.
        n_batch: usize,
        /// Chunks in it.
        chunks: usize,
        /// Tokens in a chunk.
        n_ctx: usize,
    },
    /// The matrix to go on with is not of this model.
    #[error(
        "'{tensor}' has {have} columns in the matrix to go on with and {want} in the model; is it of another model?"
    )]
    Columns {
        /// The weight.
        tensor: String,
        /// In the file.
        have: usize,
        /// In the model.
        want: usize,
    },
    /// The model computed a NaN or an infinity.
    #[error(
        "non-finite activations go into '{tensor}' in chunks {first} to {last}: the model's weights are damaged or overflow"
    )]
    NonFinite {
        /// The weight.
        tensor: String,
        /// First chunk of the batch, counted from 1.
        first: usize,
        /// Last chunk of the batch.
        last: usize,
    },
    /// More tokens than can be counted.
    #[error(transparent)]
    Matrix(#[from] ImatrixError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// What the caller did with a finished group failed.
    #[error(transparent)]
    Watch(Box<dyn Error + Send + Sync>),
}

/// How chunks are batched, which decides the order of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    n_ctx: usize,
    n_batch: usize,
    n_ubatch: usize,
}

/// Tokens that go through the model in one call, of one chunk of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    chunk: usize,
    tokens: Range<usize>,
}

impl Schedule {
    /// Chunks of `n_ctx` tokens in batches of `n_batch` and micro-batches of `n_ubatch`, llama.cpp's `-c`,
    /// `-b` and `-ub`; its defaults are 512, 2048 and 512.
    ///
    /// # Errors
    /// More than 256 chunks in a batch.
    pub fn new(n_ctx: usize, n_batch: usize, n_ubatch: usize) -> Result<Schedule, CollectError> {
        let (n_ctx, n_batch) = (n_ctx.max(1), n_batch.max(1));
        let chunks = (n_batch / n_ctx).max(1);
        if chunks > MAX_SIDE_BY_SIDE {
            return Err(CollectError::SideBySide {
                n_batch,
                chunks,
                n_ctx,
            });
        }
        let n_batch = n_batch.min(chunks * n_ctx);
        Ok(Schedule {
            n_ctx,
            n_batch,
            n_ubatch: n_ubatch.clamp(1, n_batch),
        })
    }

    /// Chunks that run side by side. A run can be continued after a multiple of them without changing
    /// the order of the sums.
    pub fn side_by_side(&self) -> usize {
        (self.n_batch / self.n_ctx).max(1)
    }

    /// Tokens that count in a group of `chunks` chunks.
    pub fn counted(&self, chunks: usize) -> usize {
        let passes = self.passes(chunks);
        let rows = passes.iter().map(|p| rows(p));
        rows.filter(|&n| n >= MIN_ROWS).sum()
    }

    /// The micro-batches of a group of `chunks` chunks.
    fn passes(&self, chunks: usize) -> Vec<Vec<Part>> {
        let mut passes = Vec::new();
        let batch = self.n_batch.min(self.n_ctx);
        for start in (0..self.n_ctx).step_by(batch) {
            let end = (start + batch).min(self.n_ctx);
            // Very small micro-batches cannot hold a token of every chunk; then some chunks go first.
            // That llama.cpp lets one more in than there is room for belongs to the order.
            let together = chunks.min(self.n_ubatch + 1);
            let tokens = (self.n_ubatch / together.max(1)).max(1);
            for first in (0..chunks).step_by(together.max(1)) {
                let last = (first + together).min(chunks);
                let tokens = if last - first < together {
                    (self.n_ubatch / (last - first)).max(1)
                } else {
                    tokens
                };
                for from in (start..end).step_by(tokens) {
                    let range = from..(from + tokens).min(end);
                    let part = |chunk| Part {
                        chunk,
                        tokens: range.clone(),
                    };
                    passes.push((first..last).map(part).collect());
                }
            }
        }
        passes
    }
}

fn rows(pass: &[Part]) -> usize {
    pass.iter().map(|p| p.tokens.len()).sum()
}

/// What a caller hears of a run.
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

/// What to collect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Also for `output.weight`.
    pub output: bool,
    /// Measure the perplexity on the way.
    pub perplexity: bool,
}

/// Bytes of keys and values that [`collect`] needs an engine for.
pub fn cache_bytes(model: &Model, chunks: &Chunks, schedule: &Schedule) -> usize {
    let layout = model.page_layout();
    let pages = schedule.n_ctx.div_ceil(layout.positions);
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
    let collector = Arc::new(Collector {
        output: options.output,
        state: Mutex::new((matrix, None)),
    });
    let side_by_side = schedule.side_by_side();
    let mut sequences: Vec<Sequence> = (0..side_by_side.min(chunks.count()))
        .map(|_| engine.sequence())
        .collect();
    let mut estimate = Estimate::default();
    for first in (done..chunks.count()).step_by(side_by_side) {
        let group = first..(first + side_by_side).min(chunks.count());
        let mut scores = vec![Scores::new(engine.model().n_vocab()); group.len()];
        sequences.iter_mut().for_each(|seq| seq.truncate(0));
        for pass in schedule.passes(group.len()) {
            let observer: Arc<dyn ActivationObserver> = collector.clone();
            let step = StepOptions {
                observer: Some(observer).filter(|_| rows(&pass) >= MIN_ROWS),
                // The pass is one of the reference's, and must stay whole.
                n_ubatch: usize::MAX,
                ..StepOptions::default()
            };
            evaluate(
                engine,
                &mut sequences,
                chunks,
                &group,
                &pass,
                (&step, options),
                &mut scores,
            )?;
            if !watch.tokens(rows(&pass)) {
                return Err(CollectError::Interrupted);
            }
        }
        let add = |scores: &Scores| {
            scores.add_to(&mut estimate);
            estimate
        };
        let running: Vec<Estimate> = if options.perplexity {
            scores.iter().map(add).collect()
        } else {
            Vec::new()
        };
        let mut state = collector.lock();
        if let Some(error) = state.1.take() {
            return Err(error);
        }
        let matrix = &mut state.0;
        if let Some(tensor) = non_finite(matrix) {
            return Err(CollectError::NonFinite {
                tensor,
                first: group.start + 1,
                last: group.end,
            });
        }
        matrix.count_chunks()?;
        let heard = watch.group(group.end, matrix, &running);
        heard.map_err(CollectError::Watch)?;
    }
    let mut state = collector.lock();
    Ok(std::mem::take(&mut state.0))
}

fn non_finite(matrix: &Imatrix) -> Option<String> {
    let mut entries = matrix.entries.iter();
    let bad = entries.find(|(_, e)| !e.sums.iter().all(|s| s.is_finite()));
    bad.map(|(name, _)| name.clone())
}

/// Adds up what it sees.
struct Collector {
    output: bool,
    /// The matrix, and what went wrong with it.
    state: Mutex<(Imatrix, Option<CollectError>)>,
}

impl Collector {
    fn lock(&self) -> MutexGuard<'_, (Imatrix, Option<CollectError>)> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl ActivationObserver for Collector {
    fn observe(&self, tensor: &str, rows: &[f32], columns: usize) {
        self.add(tensor, (0, 1), rows, columns);
    }

    fn observe_expert(
        &self,
        tensor: &str,
        expert: usize,
        experts: usize,
        rows: &[f32],
        columns: usize,
    ) {
        self.add(tensor, (expert, experts), rows, columns);
    }
}

impl Collector {
    /// Adds the squares of `rows` to the sums of one of the matrices of `tensor`, and counts them.
    fn add(&self, tensor: &str, matrix: (usize, usize), rows: &[f32], columns: usize) {
        if !(tensor.starts_with("blk.") || self.output && tensor == "output.weight") {
            return;
        }
        let (number, matrices) = matrix;
        let (matrix, error) = &mut *self.lock();
        let entry = matrix
            .entries
            .entry(tensor.to_owned())
            .or_insert_with(|| Entry {
                sums: vec![0.0; columns * matrices],
                counts: vec![0; matrices],
            });
        if entry.sums.len() != columns * matrices {
            error.get_or_insert(CollectError::Columns {
                tensor: tensor.to_owned(),
                have: entry.sums.len() / matrices,
                want: columns,
            });
            return;
        }
        // Older files have several counts for a plain matrix, and one for all experts of a stack.
        if matrices == 1 && entry.counts.iter().all(|&c| c == entry.counts[0]) {
            entry.counts.truncate(1);
        } else if entry.counts.len() == 1 {
            entry.counts.resize(matrices, entry.counts[0]);
        }
        let sums = &mut entry.sums[number * columns..][..columns];
        for row in rows.chunks_exact(columns) {
            for (s, x) in sums.iter_mut().zip(row) {
                *s += x * x;
            }
        }
        let tokens = (rows.len() / columns) as i64;
        let counts = if matrices == 1 {
            &mut entry.counts[..]
        } else {
            &mut entry.counts[number..=number]
        };
        counts.iter_mut().for_each(|c| *c += tokens);
    }
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
                Options {
                    perplexity: true, ..
                } => first.saturating_sub(part.tokens.start).min(tokens.len()),
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
    rows: Rows,
    nlls: Vec<f64>,
}

impl Scores {
    fn new(n_vocab: usize) -> Scores {
        Scores {
            rows: Rows::new(n_vocab),
            nlls: Vec::new(),
        }
    }

    /// Scores a position of the chunk `text`, if it is one that is scored; its logits came with those of `part`.
    fn take(
        &mut self,
        chunks: &Chunks,
        text: &[u32],
        part: &Part,
        position: usize,
        logits: &[f32],
    ) {
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
        let mut sums = Estimate::default();
        for &v in &self.nlls {
            sums.nll += v;
            sums.nll2 += v * v;
        }
        total.nll += sums.nll;
        total.nll2 += sums.nll2;
        total.count += self.nlls.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `chunk:from-to` of every part, micro-batches apart.
    fn shown(schedule: (usize, usize, usize), chunks: usize) -> Vec<String> {
        let (n_ctx, n_batch, n_ubatch) = schedule;
        let schedule = Schedule::new(n_ctx, n_batch, n_ubatch).expect("a schedule");
        let part = |p: &Part| format!("{}:{}-{}", p.chunk, p.tokens.start, p.tokens.end);
        let pass = |p: &Vec<Part>| p.iter().map(part).collect::<Vec<_>>().join(" ");
        schedule.passes(chunks).iter().map(pass).collect()
    }

    #[test]
    fn micro_batches_hold_a_part_of_every_chunk() {
        assert_eq!(
            shown((512, 1024, 512), 2),
            ["0:0-256 1:0-256", "0:256-512 1:256-512"]
        );
        // 70 tokens for 3 chunks: 23 of each.
        let three = shown((100, 350, 70), 3);
        assert_eq!(three[0], "0:0-23 1:0-23 2:0-23");
        assert_eq!(three[4], "0:92-100 1:92-100 2:92-100");
        // The last group may be smaller.
        assert_eq!(shown((100, 350, 70), 1), ["0:0-70", "0:70-100"]);
    }

    #[test]
    fn a_batch_smaller_than_a_chunk_is_cut_on_its_own() {
        assert_eq!(
            shown((300, 140, 60), 1),
            [
                "0:0-60",
                "0:60-120",
                "0:120-140",
                "0:140-200",
                "0:200-260",
                "0:260-280",
                "0:280-300"
            ]
        );
    }

    #[test]
    fn chunks_that_find_no_place_come_later() {
        let passes = shown((2, 10, 3), 5);
        let first = ["0:0-1 1:0-1 2:0-1 3:0-1", "0:1-2 1:1-2 2:1-2 3:1-2"];
        assert_eq!(passes[..2], first);
        assert_eq!(passes[2..], ["4:0-2"]);
    }

    #[test]
    fn every_token_comes_once() {
        for (n_ctx, n_batch, n_ubatch) in [(7, 50, 3), (33, 100, 17), (64, 10, 4), (5, 1000, 64)] {
            let schedule = Schedule::new(n_ctx, n_batch, n_ubatch).expect("a schedule");
            for chunks in 1..=schedule.side_by_side() {
                let mut next = vec![0; chunks];
                for part in schedule.passes(chunks).iter().flatten() {
                    assert_eq!(part.tokens.start, next[part.chunk]);
                    next[part.chunk] = part.tokens.end;
                }
                assert_eq!(next, vec![n_ctx; chunks]);
            }
        }
    }

    #[test]
    fn small_micro_batches_do_not_count() {
        let schedule = Schedule::new(500, 500, 485).expect("a schedule");
        assert_eq!(schedule.counted(1), 485);
        assert!(matches!(
            Schedule::new(4, 2048, 512),
            Err(CollectError::SideBySide { chunks: 512, .. })
        ));
    }
}
