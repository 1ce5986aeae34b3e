//! Drafts by a second model.

use std::sync::Arc;

use super::error::SpeculateError;
use super::tail::{Guess, Tail};
use super::vocabulary::Vocabulary;
use crate::cancel::CancelToken;
use crate::handle::Model;
use crate::step::{EvalError, Session, SessionOptions};

/// Tokens that go through the second model together while it reads.
const AT_ONCE: usize = 512;
/// New tokens of a text that a draft reads by the way.
const FEW: usize = 16;

/// A model that drafts for the texts of another, and what their tokens have to do with each other.
#[derive(Clone)]
pub(super) struct SecondModel {
    text: Model,
    draft: Model,
    vocabulary: Arc<Vocabulary>,
}

impl SecondModel {
    /// `draft` for texts of `text`.
    ///
    /// # Errors
    /// A model that cannot continue a text, or that has no token in common with `text`.
    pub fn new(text: &Model, draft: &Model) -> Result<SecondModel, SpeculateError> {
        if draft.weights().attends_both_ways() {
            return Err(SpeculateError::NotCausal);
        }
        if draft.weights().encoder().is_some() {
            return Err(SpeculateError::HasEncoder);
        }
        let vocabulary = Vocabulary::new(text, draft);
        if vocabulary.common() == 0 {
            return Err(SpeculateError::OtherTokens);
        }
        Ok(SecondModel { text: text.clone(), draft: draft.clone(), vocabulary: Arc::new(vocabulary) })
    }

    /// For a text in a context of `n_ctx` tokens.
    pub fn for_text(&self, n_ctx: usize) -> Second {
        let SecondModel { text, draft, vocabulary } = self;
        // On the threads of the text, which wait meanwhile.
        let n_ctx = draft.weights().most_positions().map_or(n_ctx, |most| most.min(n_ctx));
        let session = Session::new(draft.weights(), text.pool(), SessionOptions { n_ctx, n_ubatch: AT_ONCE });
        Second {
            session,
            vocabulary: vocabulary.clone(),
            n_vocab: text.weights().n_vocab(),
            wanted: Vec::new(),
            read: Vec::new(),
            logits: Vec::new(),
        }
    }
}

/// A model that drafts for one text, in a session of its own, which follows the text.
pub(super) struct Second {
    session: Session,
    vocabulary: Arc<Vocabulary>,
    /// Tokens of the text's model.
    n_vocab: usize,
    /// The text and its draft in the second model's tokens; those that it does not have are left out.
    wanted: Vec<u32>,
    /// The tokens in the session.
    read: Vec<u32>,
    logits: Vec<f32>,
}

impl Second {
    /// From now on `cancel` ends a draft.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        self.session.cancel_by(Some(cancel));
    }

    /// Follows `text`: forgets what the session has beyond it and reads what is new, unless that is only a few tokens,
    /// which the draft reads by the way.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn read(&mut self, text: &[u32]) -> Result<(), EvalError> {
        self.wanted.clear();
        self.wanted.extend(text.iter().filter_map(|&id| self.vocabulary.of_text(id)));
        let pairs = self.read.iter().zip(&self.wanted);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let kept = self.session.truncate(same);
        self.read.truncate(kept);
        match self.wanted.len() - kept > FEW && self.wanted.len() < self.session.n_ctx() {
            true => self.append(false),
            false => Ok(()),
        }
    }

    /// As [`Source::draft`](super::source::Source::draft), behind a text that was [read](Second::read).
    pub fn draft(&mut self, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Option<Vec<u32>>, EvalError> {
        let most = tail.most.min(self.session.n_ctx().saturating_sub(self.wanted.len() + 1));
        let Some(last) = self.vocabulary.of_text(tail.last).filter(|_| most > 0) else {
            return Ok(None);
        };
        self.wanted.push(last);
        self.append(true)?;
        let text = self.session.mark();
        let (mut drafted, mut buffer) = (Vec::new(), Vec::new());
        while drafted.len() < most {
            let logits = self.vocabulary.logits(&self.logits, self.n_vocab, &mut buffer);
            let Some((id, own)) = guess(logits).and_then(|id| Some((id, self.vocabulary.of_text(id)?))) else {
                break;
            };
            drafted.push(id);
            if drafted.len() < most {
                self.wanted.push(own);
                self.append(true)?;
            }
        }
        if self.session.model().is_recurrent() {
            self.session.restore(&text);
            self.read.truncate(self.session.n_past());
        }
        Ok(Some(drafted))
    }

    /// Evaluates what `wanted` has beyond the session, and keeps the logits behind its last token where they are wanted.
    fn append(&mut self, logits: bool) -> Result<(), EvalError> {
        let new = &self.wanted[self.read.len()..];
        let (from, kept) = (new.len() - usize::from(logits), &mut self.logits);
        self.session.eval(new, from, &mut |_, row| {
            kept.clear();
            kept.extend_from_slice(row);
        })?;
        self.read.extend_from_slice(new);
        Ok(())
    }
}
