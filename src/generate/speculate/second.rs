//! Drafts by a second model.

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

/// A model that drafts, in a session of its own, which follows the text.
pub(super) struct Second {
    session: Session,
    vocabulary: Vocabulary,
    /// Tokens of the text's model.
    n_vocab: usize,
    /// The tokens in the session.
    read: Vec<u32>,
    logits: Vec<f32>,
}

impl Second {
    /// For texts of `model` in a context of `n_ctx` tokens.
    ///
    /// # Errors
    /// A model that cannot continue a text, or that has no token in common with `model`.
    pub fn new(model: &Model, draft: &Model, n_ctx: usize) -> Result<Second, SpeculateError> {
        if draft.weights().attends_both_ways() {
            return Err(SpeculateError::NotCausal);
        }
        let vocabulary = Vocabulary::new(model, draft);
        if vocabulary.common() == 0 {
            return Err(SpeculateError::OtherTokens);
        }
        // On the threads of the text, which wait meanwhile.
        let n_ctx = draft.weights().most_positions().map_or(n_ctx, |most| most.min(n_ctx));
        let session = Session::new(draft.weights(), model.pool(), SessionOptions { n_ctx, n_ubatch: AT_ONCE });
        let n_vocab = model.weights().n_vocab();
        Ok(Second { session, vocabulary, n_vocab, read: Vec::new(), logits: Vec::new() })
    }

    /// From now on `cancel` ends a draft.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        self.session.cancel_by(Some(cancel));
    }

    /// Reads `text`, unless only a few of its tokens are new.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn read(&mut self, text: &[u32]) -> Result<(), EvalError> {
        let wanted = self.translated(text);
        let new = wanted.len().saturating_sub(self.keep_common(&wanted));
        match new > FEW && wanted.len() < self.session.n_ctx() {
            true => self.append(&wanted, false),
            false => Ok(()),
        }
    }

    /// As [`Source::draft`](super::source::Source::draft).
    pub fn draft(&mut self, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Option<Vec<u32>>, EvalError> {
        let (Some(last), mut wanted) = (self.vocabulary.of_text(tail.last), self.translated(tail.text)) else {
            return Ok(None);
        };
        wanted.push(last);
        let most = tail.most.min(self.session.n_ctx().saturating_sub(wanted.len()));
        if most == 0 {
            return Ok(None);
        }
        // The last token is evaluated again where it was already, for its logits.
        self.keep_common(&wanted[..wanted.len() - 1]);
        self.append(&wanted, true)?;
        let text = self.session.mark();
        let (mut drafted, mut buffer) = (Vec::new(), Vec::new());
        while drafted.len() < most {
            let logits = self.vocabulary.logits(&self.logits, self.n_vocab, &mut buffer);
            let Some((id, own)) = guess(logits).and_then(|id| Some((id, self.vocabulary.of_text(id)?))) else {
                break;
            };
            drafted.push(id);
            if drafted.len() < most {
                wanted.push(own);
                self.append(&wanted, true)?;
            }
        }
        if self.session.model().is_recurrent() {
            self.session.restore(&text);
            self.read.truncate(self.session.n_past());
        }
        Ok(Some(drafted))
    }

    /// The text in the second model's tokens; those that it does not have are left out.
    fn translated(&self, text: &[u32]) -> Vec<u32> {
        text.iter().filter_map(|&id| self.vocabulary.of_text(id)).collect()
    }

    /// Forgets what the session has beyond the beginning of `wanted`; the positions that are left.
    fn keep_common(&mut self, wanted: &[u32]) -> usize {
        let pairs = self.read.iter().zip(wanted);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let kept = self.session.truncate(same);
        self.read.truncate(kept);
        kept
    }

    /// Evaluates what `wanted` has beyond the session, and keeps the logits behind its last token where they are wanted.
    fn append(&mut self, wanted: &[u32], logits: bool) -> Result<(), EvalError> {
        let new = &wanted[self.read.len()..];
        let (from, kept) = (new.len() - usize::from(logits), &mut self.logits);
        self.session.eval(new, from, &mut |_, row| {
            kept.clear();
            kept.extend_from_slice(row);
        })?;
        self.read.extend_from_slice(new);
        Ok(())
    }
}
