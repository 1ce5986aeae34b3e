//! Where evaluation meets a model: texts side by side.

use std::ops::ControlFlow;

use crate::cancel::CancelToken;
use crate::kv::PagePool;
use crate::model::{Weights, WidthError};
use crate::pool::Pool;
use crate::step::{Engine, Segment, Sequence, StepError, StepOptions};

/// Hears `(text, index, logits)`: which of the texts, which of its tokens, and what the model says of the token after
/// it.
pub type Logits<'a> = &'a mut (dyn FnMut(usize, usize, &[f32]) -> ControlFlow<()> + Send);

/// The functions of a model that an evaluation calls.
pub trait Evaluator {
    /// Logits per position.
    fn n_vocab(&self) -> usize;

    /// How many texts [`Evaluator::eval`] should get at a time, at least 1. The result does not depend on it.
    fn side_by_side(&self) -> usize;

    /// Evaluates each of `texts` in a context of its own and hands the logits of every index `from` and after to
    /// `sink`: text by text, in order. Once `sink` has said `Break` it is not called again, and what is returned says
    /// nothing.
    ///
    /// # Errors
    /// The model's error.
    fn eval(&mut self, texts: &[Vec<u32>], from: usize, sink: Logits<'_>) -> Result<(), StepError>;
}

/// How texts are batched, llama.cpp's `-c`, `-b` and `-ub`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Tokens of a text.
    pub n_ctx: usize,
    /// Tokens of all texts that are evaluated together; one text may have more.
    pub n_batch: usize,
    /// Tokens that go through the model at once, of as many texts as it takes; at most `n_batch`.
    pub n_ubatch: usize,
}

/// A model that evaluates as many texts at a time as fit into a batch, so that its weights are read once for several of
/// them where they are short.
pub struct SideBySide {
    engine: Engine,
    texts: usize,
    step: StepOptions,
}

impl SideBySide {
    /// `model` on `pool`; any-precision models run at their widest width.
    ///
    /// A text's keys and values take whole pages, and short texts do not fill theirs: there are no more texts than have
    /// room in the pages of `n_batch` positions, but always one.
    pub fn new(model: &Weights, pool: &Pool, batching: Batching) -> SideBySide {
        let layout = model.page_layout();
        let pages_each = batching.n_ctx.div_ceil(layout.positions);
        let texts = (batching.n_batch / layout.positions / pages_each.max(1)).max(1);
        let pages = PagePool::new(layout, texts * pages_each);
        SideBySide {
            engine: Engine::with_pages(model, pool, pages),
            texts,
            step: StepOptions { n_ubatch: batching.n_ubatch.min(batching.n_batch), ..StepOptions::default() },
        }
    }

    /// Runs an any-precision model at `bits` from now on.
    ///
    /// # Errors
    /// The model does not have the width; the message says which it has.
    pub fn set_bits(&mut self, bits: u8) -> Result<(), WidthError> {
        self.engine.model().check_width(bits)?;
        self.step.bits = Some(bits);
        Ok(())
    }

    /// From now on `cancel` ends an evaluation between two layers.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        self.step.cancel = Some(cancel);
    }
}

impl Evaluator for SideBySide {
    fn n_vocab(&self) -> usize {
        self.engine.model().n_vocab()
    }

    fn side_by_side(&self) -> usize {
        self.texts
    }

    fn eval(&mut self, texts: &[Vec<u32>], from: usize, sink: Logits<'_>) -> Result<(), StepError> {
        let mut sequences: Vec<Sequence> = texts.iter().map(|_| self.engine.sequence()).collect();
        let pairs = sequences.iter_mut().zip(texts);
        let segment = |(seq, tokens)| Segment { seq, tokens: Vec::as_slice(tokens), logits_from: from };
        let mut segments: Vec<Segment<'_>> = pairs.map(segment).collect();
        let mut wanted = ControlFlow::Continue(());
        // A step fills its passes segment by segment, so all logits of a text come before those of the next.
        self.engine.step(&mut segments, &self.step, &mut |text, i, logits| {
            if wanted.is_continue() {
                wanted = sink(text, i, logits);
            }
        })
    }
}
