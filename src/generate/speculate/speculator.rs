//! Drafts and verifications of one text in its session.

use std::time::Instant;

use super::drafter::{Counts, Drafter};
use super::error::SpeculateError;
use super::pace::Pace;
use super::source::{Aside, DraftSource, Source, set};
use super::tail::{Guess, Tail};
use crate::cancel::CancelToken;
use crate::handle::Model;
use crate::kv::Mark;
use crate::step::{EvalError, Session, Sink, StepError};

/// Evaluates tokens of one session, some of them ahead of time.
pub struct Speculator {
    source: Source,
    /// Width of the text.
    bits: Option<u8>,
    drafter: Drafter,
    pace: Pace,
    /// The session before the last draft was verified, where parts of it cannot be forgotten.
    before: Option<Mark>,
}

impl Speculator {
    /// For a session of `model` that is at the width of the text: up to `most` tokens at a time are drafted by `source`.
    ///
    /// # Errors
    /// A width that the model does not have or that is not below the text's; a second model of no use.
    pub fn new(
        model: &Model,
        session: &Session,
        source: &DraftSource,
        most: usize,
    ) -> Result<Speculator, SpeculateError> {
        let source = Source::new(source, model, session)?;
        source.check(session)?;
        let (drafter, pace) = (Drafter::new(most), Pace::default());
        Ok(Speculator { source, bits: session.bits(), drafter, pace, before: None })
    }

    /// Takes over the session's width after it was changed.
    ///
    /// # Errors
    /// It is not above that of the drafts.
    pub fn follow(&mut self, session: &Session) -> Result<(), SpeculateError> {
        self.source.check(session)?;
        if session.bits() != self.bits {
            self.bits = session.bits();
            self.pace.restart();
        }
        Ok(())
    }

    /// From now on `cancel` ends drafts, as the session's own token ends the rest.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        self.source.cancel_by(cancel);
    }

    /// The drafter that needs the hidden states of every token that the session evaluates for the text, where there is
    /// one.
    pub fn listener(&mut self) -> Option<&mut Aside> {
        self.source.aside().filter(|aside| aside.hears())
    }

    /// Forgets the hidden states that were heard, because the session takes up another text.
    pub fn forget_text(&mut self) {
        if let Some(aside) = self.source.aside() {
            aside.forget();
        }
    }

    /// Counts of all drafts.
    pub fn counts(&self) -> Counts {
        self.drafter.counts()
    }

    /// Measured times with drafts and without them.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Drafts even where it does not pay.
    pub fn always(&mut self) {
        self.pace.always();
    }

    /// The session before the draft whose tokens the text has not all chosen, where parts of it cannot be forgotten.
    pub fn unsettled(&self) -> Option<&Mark> {
        self.before.as_ref().filter(|_| self.drafter.ahead() > 0)
    }

    /// Forgets what was evaluated ahead, in the session too. Of a model with a recurrent state the session then may have
    /// less than the text: it goes back to where the last draft began.
    pub fn forget(&mut self, session: &mut Session) {
        let ahead = self.drafter.ahead().min(session.n_past());
        self.drafter.forget();
        self.take_back(session, session.n_past() - ahead);
        self.before = None;
    }

    /// Evaluates `id`, the next token of a text, and puts the logits after it into `logits`. At most `wanted` tokens more
    /// will be; `guess` chooses a token from drafted logits as the caller would from real ones, or ends the draft.
    ///
    /// The session holds `text`, followed by what was evaluated ahead: only this speculator may change it, or
    /// [`Speculator::forget`] comes first.
    ///
    /// # Errors
    /// Those of [`Session::eval`].
    pub fn advance(
        &mut self,
        session: &mut Session,
        text: &[u32],
        id: u32,
        wanted: usize,
        guess: &mut Guess<'_>,
        logits: &mut Vec<f32>,
    ) -> Result<(), EvalError> {
        if let Some(after) = self.drafter.follow(id) {
            self.pace.accepted(1);
            *logits = after;
            return Ok(());
        }
        self.take_back(session, text.len());
        self.before = None;
        if let Some(listener) = self.listener() {
            listener.catch_up(text)?;
        }
        let most = self.drafter.length(wanted, session.n_ctx().saturating_sub(text.len() + 1));
        let drafts = most > 0 && self.pace.wants_draft();
        if drafts {
            self.source.read(text)?;
        }
        let start = Instant::now();
        let drafted = match drafts {
            true => self.draft(session, &Tail { text, last: id, most }, guess)?,
            false => None,
        };
        // A session that went back reads again what the text has beyond it.
        let first = text.len() - session.n_past();
        let mut tokens = [&text[session.n_past()..], &[id]].concat();
        tokens.extend(drafted.iter().flatten());
        if session.model().is_recurrent() && drafted.is_some() {
            self.before = Some(session.mark());
        }
        let position = session.n_past();
        let mut verified =
            Verified { tokens: &tokens, first, position, logits, ahead: Vec::new(), aside: self.source.aside() };
        session.eval_into(&tokens, first, &mut verified)?;
        let ahead = verified.ahead;
        if drafted.is_none() {
            self.pace.plain(start.elapsed());
            return Ok(());
        }
        self.drafter.verify(ahead);
        self.pace.round(start.elapsed());
        self.pace.accepted(1);
        Ok(())
    }

    /// The source's draft behind `tail`; the session is as it was. A source that fails drafts nothing.
    fn draft(
        &mut self,
        session: &mut Session,
        tail: &Tail<'_>,
        guess: &mut Guess<'_>,
    ) -> Result<Option<Vec<u32>>, EvalError> {
        let before = session.mark();
        let drafted = self.source.draft(session, tail, guess);
        session.restore(&before);
        if let Some(bits) = self.bits {
            set(session, bits);
        }
        match drafted {
            Err(e @ EvalError::Step(StepError::Cancelled)) => Err(e),
            drafted => Ok(drafted.unwrap_or_default()),
        }
    }

    /// Cuts the session back to its first `len` positions, or to fewer where a recurrent state stands after later ones.
    fn take_back(&mut self, session: &mut Session, len: usize) {
        if session.n_past() <= len {
            return;
        }
        match &self.before {
            Some(before) => session.restore(before),
            None => {
                session.truncate(len);
            }
        }
    }
}

/// Hears the logits of a token of the text and of what was drafted behind it.
struct Verified<'a> {
    tokens: &'a [u32],
    /// The index of the token of the text, and the position of the first token.
    first: usize,
    position: usize,
    logits: &'a mut Vec<f32>,
    ahead: Vec<(u32, Vec<f32>)>,
    aside: Option<&'a mut Aside>,
}

impl Sink for Verified<'_> {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.hears())
    }

    fn logits(&mut self, _: usize, index: usize, logits: &[f32]) {
        match index == self.first {
            true => {
                self.logits.clear();
                self.logits.extend_from_slice(logits);
            }
            false => self.ahead.push((self.tokens[index], logits.to_vec())),
        }
    }

    fn hidden(&mut self, _: usize, index: usize, state: &[f32]) {
        if let Some(aside) = &mut self.aside {
            aside.hear(self.position + index, state);
        }
    }
}
