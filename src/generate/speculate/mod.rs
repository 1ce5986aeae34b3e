//! Speculative decoding with an any-precision model: the same file drafts and verifies.
//!
//! A few tokens are drafted one by one at a narrow width, then evaluated together at the wide one, which takes little
//! longer than one of them where the time goes into reading weights. The caller chooses every token from the wide
//! width's logits, and these have the bits of a token evaluated by itself; drafts that agree with the choices were
//! evaluated already. So the text is the one without drafts, whatever the sampler. One key-value cache serves both
//! widths: what drafting puts there is overwritten by the verification, and what was drafted in vain is forgotten.
//!
//! Long drafts pay where they are mostly right: a draft that was right to its end makes the next one longer, any other
//! makes it shorter. Whether drafts pay at all depends on the model, the text and the machine, so it is measured:
//! [`Pace`].

mod pace;

use std::collections::VecDeque;
use std::time::Instant;

use crate::model::WidthError;
use crate::step::{EvalError, Session};

pub use pace::Pace;

/// Why there can be no drafts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeculateError {
    /// The model does not have the width.
    #[error(transparent)]
    Width(#[from] WidthError),
    /// What was drafted in vain cannot be taken back.
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

/// How drafting went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Verifications.
    pub rounds: usize,
    /// Tokens that were drafted.
    pub drafted: usize,
    /// Of these the ones that the text has.
    pub accepted: usize,
}

impl Counts {
    /// The share of drafted tokens that the text has, or 0.
    pub fn acceptance(&self) -> f64 {
        self.accepted as f64 / self.drafted.max(1) as f64
    }
}

/// Tokens of the first draft, where as many are allowed.
const FIRST: usize = 4;
/// Tokens by which a draft grows after one that was right to its end.
const GROWTH: usize = 2;

/// Evaluates tokens of one session, some of them ahead of time.
pub struct Speculator {
    draft_bits: u8,
    bits: u8,
    most: usize,
    /// Tokens of the next draft.
    length: usize,
    /// Whether all tokens of the last draft were right so far.
    right: bool,
    /// Drafted tokens whose evaluation stands in the session, each with the logits after it.
    ahead: VecDeque<(u32, Vec<f32>)>,
    counts: Counts,
    pace: Pace,
}

impl Speculator {
    /// For a session that is at the width of the text: up to `most` tokens at a time are drafted at `draft_bits`.
    ///
    /// # Errors
    /// The model does not have that width, or it is not below the session's.
    pub fn new(session: &Session, draft_bits: u8, most: usize) -> Result<Speculator, SpeculateError> {
        session.model().check_width(draft_bits)?;
        if session.model().is_recurrent() {
            return Err(SpeculateError::Recurrent);
        }
        let mut speculator = Speculator {
            draft_bits,
            bits: draft_bits,
            most,
            length: FIRST.min(most),
            right: true,
            ahead: VecDeque::new(),
            counts: Counts::default(),
            pace: Pace::new(),
        };
        speculator.follow(session)?;
        Ok(speculator)
    }

    /// Takes over the session's width after it was changed.
    ///
    /// # Errors
    /// It is not above that of the drafts.
    pub fn follow(&mut self, session: &Session) -> Result<(), SpeculateError> {
        let (draft, text) = (self.draft_bits, session.bits().unwrap_or(0));
        if text <= draft {
            return Err(SpeculateError::NotNarrower { draft, text });
        }
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

    /// How it went so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What was measured.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Drafts even where it does not pay.
    pub fn always(&mut self) {
        self.pace.always();
    }

    /// Forgets what was evaluated ahead, in the session too.
    pub fn forget(&mut self, session: &mut Session) {
        let kept = session.n_past() - self.ahead.len().min(session.n_past());
        self.ahead.clear();
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
        self.pace.token();
        if let Some((drafted, _)) = self.ahead.front() {
            if *drafted == id {
                self.counts.accepted += 1;
                if let Some((_, after)) = self.ahead.pop_front() {
                    *logits = after;
                }
                return Ok(());
            }
            self.right = false;
            self.forget(session);
        }
        let room = session.n_ctx().saturating_sub(session.n_past() + 1);
        let most = self.most.min(wanted.saturating_sub(1)).min(room);
        let start = Instant::now();
        if most == 0 || !self.pace.wants_draft() {
            session.eval(&[id], 0, &mut |_, row| copy(row, logits))?;
            self.pace.plain(start.elapsed());
            return Ok(());
        }
        let most = most.min(self.next_length());
        let first = session.n_past();
        let drafted = self.draft(session, id, most, guess);
        // also after a failed draft, which may have been at any point
        session.truncate(first);
        set(session, self.bits);
        let mut tokens = vec![id];
        tokens.extend(drafted?);
        let ahead = &mut self.ahead;
        session.eval(&tokens, 0, &mut |i, row| {
            if i == 0 {
                copy(row, logits);
            } else {
                ahead.push_back((tokens[i], row.to_vec()));
            }
        })?;
        self.counts.rounds += 1;
        self.counts.drafted += tokens.len() - 1;
        self.right = true;
        self.pace.round(start.elapsed());
        Ok(())
    }

    /// How long the next draft may be, from how the last one went.
    fn next_length(&mut self) -> usize {
        if self.counts.rounds > 0 {
            self.length = if self.right { (self.length + GROWTH).min(self.most) } else { (self.length - 1).max(1) };
        }
        self.length
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
