//! Drafts by a model that attends to keys of the text's own (Gemma 4's assistants; llama.cpp's `--spec-type draft-mtp -md`).
//!
//! It reads the hidden state behind the text and the text's last token, and goes on with what it drafted. All drafted tokens
//! have the position of that token, and nothing is stored.

use super::last::Last;
use super::tail::{Guess, Tail};
use super::trail::Trail;
use crate::cancel::CancelToken;
use crate::kv::Sequence;
use crate::model::Weights;
use crate::pool::Pool;
use crate::step::{Engine, EvalError, Session, SessionOptions};

/// States at the end of a text that are kept, for texts that are taken up a little earlier.
const KEPT: usize = 64;

/// A model that drafts for one text from the keys of that.
pub(super) struct Borrower {
    model: Weights,
    pool: Pool,
    n_ctx: usize,
    trail: Trail,
    keys: Option<Sequence>,
    cancel: Option<CancelToken>,
}

impl Borrower {
    /// `model` for a text in a context of `n_ctx` tokens.
    pub fn new(model: &Weights, pool: &Pool, n_ctx: usize) -> Borrower {
        let trail = Trail::new(model.hears());
        Borrower { model: model.clone(), pool: pool.clone(), n_ctx, trail, keys: None, cancel: None }
    }

    /// From now on `cancel` ends a draft.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        self.cancel = Some(cancel);
    }

    /// Takes in the model's hidden state at `position` of the text.
    pub fn hear(&mut self, position: usize, state: &[f32]) {
        self.trail.hear(position, state);
        let end = self.trail.positions().end;
        if self.trail.positions().len() > 2 * KEPT {
            self.trail.forget_before(end - KEPT);
        }
    }

    /// Forgets all of the text.
    pub fn forget(&mut self) {
        self.trail.forget();
        self.keys = None;
    }

    /// The next draft attends to the positions of `keys`, which is then let go.
    pub fn lend(&mut self, keys: Sequence) {
        self.keys = Some(keys);
    }

    /// As [`Source::draft`](super::source::Source::draft).
    pub fn draft(&mut self, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Option<Vec<u32>>, EvalError> {
        let at = tail.text.len();
        let Some(keys) = self.keys.take().filter(|keys| at > 0 && keys.len() == at) else {
            return Ok(None);
        };
        if !self.trail.positions().contains(&at) {
            return Ok(None);
        }
        let engine = Engine::with_pages(&self.model, &self.pool, keys.home().clone());
        let mut session = Session::of_engine(&engine, SessionOptions { n_ctx: self.n_ctx, n_ubatch: 1 });
        session.cancel_by(self.cancel.clone());
        session.replace(keys);
        let (mut token, mut state) = (tail.last, self.trail.before(at..at + 1).to_vec());
        let mut drafted = Vec::with_capacity(tail.most);
        while drafted.len() < tail.most {
            let mut last = Last::default();
            session.eval_behind(&state, &[token], 0, &mut last)?;
            let Some(id) = guess(&last.logits) else {
                break;
            };
            drafted.push(id);
            (token, state) = (id, last.state);
        }
        Ok(Some(drafted))
    }
}
