//! Speculative decoding: tokens are drafted cheaply and verified together.
//!
//! A draft comes from a [`DraftSource`]: the same any-precision file at a narrow width, a second, smaller model, or the
//! text itself. Its tokens are evaluated together at the width of the text, which takes little longer than one of them
//! where the time goes into reading weights. The caller chooses every token from these logits, which have the bits of
//! a token evaluated by itself; drafts that agree with the choices were evaluated already. So the text is the one
//! without drafts, whatever the source and the sampler. What was drafted in vain is forgotten; a recurrent state, of
//! which no part can be forgotten, goes back to where it was before the draft.
//!
//! [`Drafter`] decides how long a draft is and which of its tokens are accepted, [`Pace`] measures whether drafts pay;
//! both evaluate nothing. [`Speculator`] drives them in a session.

mod drafter;
mod lookup;
mod pace;
mod second;
mod source;
mod vocabulary;

use std::time::Instant;

use crate::cancel::CancelToken;
use crate::handle::Model as Handle;
use crate::kv::Mark;
use crate::model::{Model, WidthError};
use crate::step::{EvalError, Session, StepError};
use source::{Guess, Source, Tail};

pub use drafter::{Counts, Drafter};
pub use pace::Pace;
pub use source::DraftSource;

/// Why there can be no drafts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeculateError {
    /// The model does not have the width.
    #[error(transparent)]
    Width(#[from] WidthError),
    /// A rejected draft cannot be taken back within a step of many texts.
    #[error("the model has recurrent layers, whose state cannot be cut back: it cannot draft")]
    Recurrent,
    /// The second model fills gaps in texts.
    #[error("the draft model attends in both directions: it cannot continue a text")]
    NotCausal,
    /// The two models have no token in common.
    #[error("no token of the draft model stands for the same text as one of the model's")]
    OtherTokens,
    /// Drafts must be cheaper than the text.
    #[error("drafts at {draft} bits are of no use for a text at {text}; draft at fewer bits")]
    NotNarrower {
        /// Width of the drafts.
        draft: u8,
        /// Width of the text.
        text: u8,
    },
}

/// Checks that `model` can draft at `draft` bits for a text at `text`.
///
/// # Errors
/// The model does not have that width, it is not below the text's, or drafts cannot be taken back.
pub fn check(model: &Model, draft: u8, text: u8) -> Result<(), SpeculateError> {
    model.check_width(draft)?;
    if model.is_recurrent() {
        return Err(SpeculateError::Recurrent);
    }
    match draft < text {
        true => Ok(()),
        false => Err(SpeculateError::NotNarrower { draft, text }),
    }
}

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
        model: &Handle,
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
        let mut ahead = Vec::new();
        session.eval(&tokens, first, &mut |i, row| match i == first {
            true => copy(row, logits),
            false => ahead.push((tokens[i], row.to_vec())),
        })?;
        if drafted.is_none() {
            self.pace.plain(start.elapsed());
            return Ok(());
        }
        self.drafter.verify(ahead);
        self.pace.round(start.elapsed());
        self.pace.accepted(1);
        Ok(())
    }

    /// What the source drafts behind `tail`; the session is as it was. A source that fails drafts nothing.
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

fn copy(row: &[f32], logits: &mut Vec<f32>) {
    logits.clear();
    logits.extend_from_slice(row);
}

/// Both widths were checked when they were chosen.
fn set(session: &mut Session, bits: u8) {
    let done = session.set_bits(bits);
    debug_assert!(done.is_ok(), "the width is in the file");
}
