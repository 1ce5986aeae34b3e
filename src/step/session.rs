//! A running context: one sequence with a length of its own.

use std::sync::Arc;

use super::engine::{Engine, Segment, StepError, StepOptions};
use super::sink::{Logits, Sink};
use crate::cancel::CancelToken;
use crate::exec::Profile;
use crate::kv::{Mark, PagePool, Sequence};
use crate::model::{Weights, WidthError};
use crate::ops::observe::ActivationObserver;
use crate::pool::Pool;

/// How a session runs.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Positions the cache may hold.
    pub n_ctx: usize,
    /// Tokens per forward pass; the results are bit-identical.
    pub n_ubatch: usize,
}

/// Why tokens cannot be evaluated. The session is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The cache has no room for the tokens.
    #[error(
        "the context is full: {n_past} positions used and {new} more wanted, but n_ctx is {n_ctx}; use a larger -c"
    )]
    ContextFull {
        /// Positions in the cache.
        n_past: usize,
        /// Tokens given.
        new: usize,
        /// Size of the context.
        n_ctx: usize,
    },
    /// A token the model does not have.
    #[error("token {id} at index {index} is outside the vocabulary of {n_vocab}")]
    UnknownToken {
        /// The token.
        id: u32,
        /// Where in the call's tokens.
        index: usize,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// The step says no for another reason.
    #[error(transparent)]
    Step(StepError),
}

/// The error of a step that was made for one text alone.
impl From<StepError> for EvalError {
    fn from(error: StepError) -> EvalError {
        match error {
            StepError::UnknownToken { id, index, n_vocab, .. } => EvalError::UnknownToken { id, index, n_vocab },
            other => EvalError::Step(other),
        }
    }
}

/// A context over a shared [`Weights`].
pub struct Session {
    engine: Engine,
    seq: Sequence,
    n_ctx: usize,
    step: StepOptions,
}

impl Session {
    /// An empty context on `pool`; any-precision models run at their widest width. Its memory grows with its positions.
    pub fn new(model: &Weights, pool: &Pool, options: SessionOptions) -> Session {
        let layout = model.page_layout();
        // One more than needed, for the copy of a page that a fork of the sequence holds too.
        let pages = options.n_ctx.div_ceil(layout.positions) + 1;
        let engine = Engine::with_pages(model, pool, PagePool::new(layout, pages)).with_sequences(1);
        Session::of_engine(&engine, options)
    }

    /// An empty context among others of `engine`, with whose pages it makes do.
    pub fn of_engine(engine: &Engine, options: SessionOptions) -> Session {
        Session {
            engine: engine.clone(),
            seq: engine.sequence(),
            n_ctx: options.n_ctx,
            step: StepOptions {
                bits: engine.model().widths().last().copied(),
                n_ctx: options.n_ctx,
                n_ubatch: options.n_ubatch,
                ..StepOptions::default()
            },
        }
    }

    /// [`Engine::prepare`] of its engine.
    ///
    /// # Errors
    /// Those of it.
    pub fn prepare(&self) -> Result<(), StepError> {
        self.engine.prepare(self.step.n_ubatch)
    }

    /// Positions in the cache.
    pub fn n_past(&self) -> usize {
        self.seq.len()
    }

    /// Positions the cache may hold.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// The model this session runs.
    pub fn model(&self) -> &Weights {
        self.engine.model()
    }

    /// From now on `observer` sees the activations of every weight matrix; `None` ends that.
    pub fn observe(&mut self, observer: Option<Arc<dyn ActivationObserver>>) {
        self.step.observer = observer;
    }

    /// From now on `cancel` ends an evaluation between two layers; `None` ends that.
    pub fn cancel_by(&mut self, cancel: Option<CancelToken>) {
        self.step.cancel = cancel;
    }

    /// From now on `profile` has the times of operations; `None` ends that.
    pub fn profile_by(&mut self, profile: Option<Arc<Profile>>) {
        self.step.profile = profile;
    }

    /// Bits of an any-precision model's weights; `None` of any other model.
    pub fn bits(&self) -> Option<u8> {
        self.step.bits
    }

    /// Runs an any-precision model at `bits` from now on. What is in the context stays: keys and values are of the
    /// same form at every width.
    ///
    /// # Errors
    /// The model does not have the width; the message says which it has.
    pub fn set_bits(&mut self, bits: u8) -> Result<(), WidthError> {
        self.model().check_width(bits)?;
        self.step.bits = Some(bits);
        Ok(())
    }

    /// Forgets every position from `n_past` on, of models with a recurrent state all of them, unless there are no more.
    /// The positions that are left.
    pub fn truncate(&mut self, n_past: usize) -> usize {
        self.seq.truncate(n_past)
    }

    /// The present state, to return to with [`Session::restore`].
    pub fn mark(&self) -> Mark {
        self.seq.mark()
    }

    /// Goes back to a state whose positions the context still begins with, of models with a recurrent state too.
    pub fn restore(&mut self, mark: &Mark) {
        self.seq.restore(mark.clone());
    }

    /// Forgets everything and gives the memory back.
    pub fn clear(&mut self) {
        self.seq.set_source(None);
        self.engine.pages().release_spare();
    }

    /// Bytes of the pages that hold keys and values, and of the recurrent state.
    pub fn cache_bytes(&self) -> usize {
        self.seq.pages() * self.seq.layout().bytes() + self.seq.state_bytes()
    }

    /// The first `len` positions as a sequence of its own; of models with a recurrent state these are all there are, or
    /// were at the mark `before`.
    ///
    /// # Panics
    /// There are fewer positions, or a recurrent state stands after later ones.
    pub fn part(&self, len: usize, before: Option<&Mark>) -> Sequence {
        let mut part = self.seq.fork(self.n_past());
        if let Some(before) = before {
            part.restore(before.clone());
        }
        let part = part.fork(len);
        assert_eq!(part.len(), len, "positions that can be had");
        part
    }

    /// Goes on behind `sequence`, one of its engine's, instead.
    pub fn replace(&mut self, sequence: Sequence) {
        self.seq = sequence;
    }

    /// Where the pages of its sequence come from.
    pub fn pages(&self) -> &PagePool {
        self.engine.pages()
    }

    /// [`Engine::form`] for its context.
    pub fn form(&self) -> String {
        self.engine.form(self.n_ctx)
    }

    /// The model's encoder reads `tokens`, which everything attends to from now on; what was evaluated is forgotten.
    ///
    /// # Errors
    /// Those of [`Engine::read_source`]; the session is as it was then.
    pub fn read_source(&mut self, tokens: &[u32]) -> Result<(), EvalError> {
        self.engine.read_source(&mut self.seq, tokens, &self.step).map_err(EvalError::from)
    }

    /// Appends `tokens` to the context and calls `sink(i, logits)` for every index `i >= from` of them,
    /// in order; `from = tokens.len()` wants none.
    ///
    /// # Errors
    /// Checked before anything is computed: room in the context, tokens in the vocabulary. A cancelled evaluation
    /// leaves the context as it was.
    pub fn eval(
        &mut self,
        tokens: &[u32],
        from: usize,
        sink: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<(), EvalError> {
        let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) = &mut |_, i, row| sink(i, row);
        self.eval_into(tokens, from, &mut Logits(sink))
    }

    /// [`Session::eval_into`] of a model that reads hidden states: those before `tokens`, `[tokens][n]`.
    ///
    /// # Errors
    /// As [`Session::eval`].
    pub fn eval_behind(
        &mut self,
        hidden: &[f32],
        tokens: &[u32],
        from: usize,
        sink: &mut dyn Sink,
    ) -> Result<(), EvalError> {
        self.step.hidden = hidden.to_vec();
        let done = self.eval_into(tokens, from, sink);
        self.step.hidden.clear();
        done
    }

    /// [`Session::eval`] for a sink that may need hidden states too.
    ///
    /// # Errors
    /// As [`Session::eval`].
    pub fn eval_into(&mut self, tokens: &[u32], from: usize, sink: &mut dyn Sink) -> Result<(), EvalError> {
        let n_past = self.n_past();
        if n_past + tokens.len() > self.n_ctx {
            let n_vocab = self.model().n_vocab();
            let mut ids = tokens.iter().enumerate();
            // A token that is not there is the caller's mistake, whatever the room.
            if let Some((index, &id)) = ids.find(|(_, id)| **id as usize >= n_vocab) {
                return Err(EvalError::UnknownToken { id, index, n_vocab });
            }
            return Err(EvalError::ContextFull { n_past, new: tokens.len(), n_ctx: self.n_ctx });
        }
        let segment = Segment { seq: &mut self.seq, tokens, logits_from: from };
        let done = self.engine.step_into(&mut [segment], &self.step, sink);
        done.map_err(EvalError::from)
    }
}
