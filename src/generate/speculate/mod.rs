//! Speculative decoding with an any-precision model: the same file drafts and verifies.
//!
//! A few tokens are drafted one by one at a narrow width, then evaluated together at the wide one, which takes little
//! longer than one of them where the time goes into reading weights. The caller chooses every token from the wide
//! width's logits, and these have the bits of a token evaluated by itself; drafts that agree with the choices were
//! evaluated already. So the text is the one without drafts, whatever the sampler. One key-value cache serves both
//! widths: what drafting puts there is overwritten by the verification, and what was drafted in vain is forgotten.
//!
//! [`Drafter`] decides how long a draft is and which of its tokens are accepted, [`Pace`] measures whether drafts pay;
//! both evaluate nothing. [`Speculator`] drives them in a session.

mod drafter;
mod pace;

use std::time::Instant;

use crate::model::{Model, WidthError};
use crate::step::{EvalError, Session};

pub use drafter::{Counts, Drafter};
pub use pace::Pace;

/// Why there can be no drafts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeculateError {
    /// The model does not have the width.
    #[error(transparent)]
    Width(#[from] WidthError),
    /// A rejected draft cannot be taken back.
    #[error("the model has recurrent layers, whose state cannot be cut back: it cannot draft")]
    Recurrent,
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
    draft_bits: u8,
    bits: u8,
    drafter: Drafter,
    pace: Pace,
}

impl Speculator {
    /// For a session that is at the width of the text: up to `most` tokens at a time are drafted at `draft_bits`.
    ///
    /// # Errors
    /// The errors of [`check`].
    pub fn new(session: &Session, draft_bits: u8, most: usize) -> Result<Speculator, SpeculateError> {
        let mut speculator =
            Speculator { draft_bits, bits: draft_bits, drafter: Drafter::new(most), pace: Pace::default() };
        speculator.follow(session)?;
        Ok(speculator)
    }

    /// Takes over the session's width after it was changed.
    ///
    /// # Errors
    /// The errors of [`check`].
    pub fn follow(&mut self, session: &Session) -> Result<(), SpeculateError> {
        let text = session.bits().unwrap_or(0);
        check(session.model(), self.draft_bits, text)?;
        if text != self.bits {
            self.bits = text;
            self.pace.restart();
        }
        Ok(())
    }

    /// Width of the drafts.
    pub fn draft_bits(&self) -> u8 {
        self.draft_bits
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

    /// Forgets what was evaluated ahead, in the session too.
    pub fn forget(&mut self, session: &mut Session) {
        let kept = session.n_past() - self.drafter.ahead().min(session.n_past());
        self.drafter.forget();
        session.truncate(kept);
    }

    /// Evaluates the next token of the text and puts the logits after it into `logits`. At most `wanted` tokens more
    /// will be; `guess` chooses a token from drafted logits as the caller would from real ones, or ends the draft.
    ///
    /// The context is the text so far, followed by what was evaluated ahead: only this speculator may change it, or
    /// [`Speculator::forget`] comes first.
    ///
    /// # Errors
    /// Those of [`Session::eval`].
    pub fn advance(
        &mut self,
        session: &mut Session,
        id: u32,
        wanted: usize,
        guess: &mut dyn FnMut(&[f32]) -> Option<u32>,
        logits: &mut Vec<f32>,
    ) -> Result<(), EvalError> {
        let first = session.n_past() - self.drafter.ahead();
        if let Some(after) = self.drafter.follow(id) {
            self.pace.accepted(1);
            *logits = after;
            return Ok(());
        }
        session.truncate(first);
        let most = self.drafter.length(wanted, session.n_ctx().saturating_sub(first + 1));
        let start = Instant::now();
        if most == 0 || !self.pace.wants_draft() {
            session.eval(&[id], 0, &mut |_, row| copy(row, logits))?;
            self.pace.plain(start.elapsed());
            return Ok(());
        }
        let drafted = self.draft(session, id, most, guess);
        // also after a failed draft, which may have been at any point
        session.truncate(first);
        set(session, self.bits);
        let mut tokens = vec![id];
        tokens.extend(drafted?);
        let mut ahead = Vec::new();
        session.eval(&tokens, 0, &mut |i, row| match i {
            0 => copy(row, logits),
            _ => ahead.push((tokens[i], row.to_vec())),
        })?;
        self.drafter.verify(ahead);
        self.pace.round(start.elapsed());
        self.pace.accepted(1);
        Ok(())
    }

    /// Up to `most` tokens that may follow `id`; leaves the session at the narrow width.
    fn draft(
        &self,
        session: &mut Session,
        id: u32,
        most: usize,
        guess: &mut dyn FnMut(&[f32]) -> Option<u32>,
    ) -> Result<Vec<u32>, EvalError> {
        set(session, self.draft_bits);
        let (mut last, mut tokens) = (id, Vec::with_capacity(most));
        while tokens.len() < most {
            let mut guessed = None;
            session.eval(&[last], 0, &mut |_, row| copy(row, guessed.insert(Vec::new())))?;
            let Some(next) = guessed.as_deref().and_then(&mut *guess) else {
                break;
            };
            tokens.push(next);
            last = next;
        }
        Ok(tokens)
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
