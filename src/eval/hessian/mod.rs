//! Hessians: sums of `x x^T` over what is multiplied with the weight matrices of the blocks.
//!
//! Every chunk of the text is a sequence of its own. The products of 128 neighbouring tokens of a chunk are summed in
//! `f32` and added to `f64` sums, chunk after chunk: so the bits of the sums depend on the text and the length of the
//! chunks, not on the number of parallel chunks, on the threads or on the instruction set. Matrices that read the same
//! input share its sums.
//!
//! Every expert has sums of its own, over the tokens of a chunk that go there, those of which it is the first choice
//! before those of which it is the second; models with experts take one chunk at a time, so that these are neighbours.
//! Where the sums of all inputs are more than memory holds, [`groups`] of them are collected one after the other. A
//! [`Walk`] goes through the blocks one by one while their matrices are rounded.

mod collector;
mod error;
mod sums;
mod walk;

pub use error::CollectError;
pub use sums::{Collected, groups};
pub use walk::{News, Walk};

use std::error::Error;
use std::sync::Arc;

use trine_formats::hessian::{Hessians, Origin};

use super::Chunks;
use crate::kernels::Isa;
use crate::model::Weights;
use crate::ops::observe::ActivationObserver;
use crate::step::{Engine, Segment, Sequence, StepOptions};
use collector::{Collector, Scout};

/// Notifications of a run.
pub trait Watch {
    /// `done` chunks are in the sums. `false` stops the run, with the sums as they are.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn group(&mut self, done: usize, collected: &Collected) -> Result<bool, Box<dyn Error + Send + Sync>>;
}

/// Bytes of keys and values that [`collect`] needs an engine for when `side_by_side` chunks run together.
pub fn cache_bytes(model: &Weights, chunks: &Chunks, side_by_side: usize) -> usize {
    let layout = model.page_layout();
    let pages = chunks.n_ctx().div_ceil(layout.positions);
    side_by_side.min(chunks.count()) * pages * layout.bytes()
}

/// The inputs of the model's matrices, grouped where several matrices read the same one, found by evaluating the first
/// tokens of the text.
///
/// # Errors
/// A model without matrices; what a step says.
pub fn inputs(engine: &Engine, chunks: &Chunks, origin: Origin) -> Result<Hessians, CollectError> {
    let scout = Arc::new(Scout::default());
    let mut sequence = engine.sequence();
    let tokens = chunks.context(0);
    let options = options(scout.clone());
    let some = tokens.len().min(SCOUTED);
    let mut segments = [Segment { seq: &mut sequence, tokens: &tokens[..some], logits_from: some }];
    engine.step(&mut segments, &options, &mut |_, _, _| {})?;
    let (inputs, weights) = scout.found();
    if inputs.is_empty() {
        return Err(CollectError::NoMatrices);
    }
    Ok(Hessians { origin, chunks: 0, inputs, weights })
}

/// Tokens that are enough to tell inputs apart.
const SCOUTED: usize = 3;

/// Evaluates the chunks that are not in `collected` yet, `side_by_side` of them together, and adds them.
///
/// # Errors
/// Non-finite activations, and what `watch` says. [`CollectError::Interrupted`] when it stopped the run.
pub fn collect(
    engine: &Engine,
    chunks: &Chunks,
    side_by_side: usize,
    isa: Isa,
    collected: Collected,
    watch: &mut dyn Watch,
) -> Result<Collected, CollectError> {
    let side_by_side = if collected.header.has_experts() { 1 } else { side_by_side.max(1) };
    let mut done = collected.header.chunks as usize;
    let collector = Arc::new(Collector::new(collected, chunks.n_ctx(), isa));
    let mut sequences: Vec<Sequence> = (0..side_by_side.min(chunks.count())).map(|_| engine.sequence()).collect();
    while done < chunks.count() {
        let group = done..(done + side_by_side).min(chunks.count());
        let tokens: Vec<Vec<u32>> = group.clone().map(|i| chunks.context(i)).collect();
        let mut segments = Vec::with_capacity(tokens.len());
        for (seq, tokens) in sequences.iter_mut().zip(&tokens) {
            seq.truncate(0);
            segments.push(Segment { seq, tokens, logits_from: tokens.len() });
        }
        engine.step(&mut segments, &options(collector.clone()), &mut |_, _, _| {})?;
        let mut state = collector.lock();
        state.check(group.start + 1, group.end)?;
        done = group.end;
        state.collected.header.chunks = u32::try_from(done).unwrap_or(u32::MAX);
        let heard = watch.group(done, &state.collected);
        if !heard.map_err(CollectError::Watch)? && done < chunks.count() {
            return Err(CollectError::Interrupted);
        }
    }
    let mut state = collector.lock();
    let header = std::mem::take(&mut state.collected.header);
    let sums = std::mem::take(&mut state.collected.sums);
    Ok(Collected { header, sums })
}

/// A step that shows whole passes to an observer.
fn options(observer: Arc<dyn ActivationObserver>) -> StepOptions {
    StepOptions { observer: Some(observer), n_ubatch: usize::MAX, ..StepOptions::default() }
}
