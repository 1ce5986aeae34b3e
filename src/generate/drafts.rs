//! The drafts of a context: on or off from one text to the next.

use super::speculate::{SpeculateError, Speculator};
use super::{Chooser, DraftOptions};
use crate::step::{EvalError, Session};

/// A speculator while drafts are wanted. It is kept from text to text, because it measures whether drafts pay.
#[derive(Default)]
pub(super) struct Drafts {
    wanted: Option<(DraftOptions, Speculator)>,
}

impl Drafts {
    /// Drafts from now on as `wanted`, for `session` at its present width. Nothing is evaluated ahead.
    pub fn prepare(&mut self, session: &Session, wanted: Option<DraftOptions>) -> Result<(), SpeculateError> {
        match (&mut self.wanted, wanted) {
            (_, None) => self.wanted = None,
            (Some((same, speculator)), Some(options)) if *same == options => {
                speculator.follow(session)?;
            }
            (_, Some(options)) => {
                let mut speculator = Speculator::new(session, options.bits, options.most)?;
                if options.always {
                    speculator.always();
                }
                self.wanted = Some((options, speculator));
            }
        }
        Ok(())
    }

    /// How drafting went, where it is wanted.
    pub fn speculator(&self) -> Option<&Speculator> {
        self.wanted.as_ref().map(|(_, speculator)| speculator)
    }

    /// Forgets what was evaluated ahead of the text, in the session too.
    pub fn forget(&mut self, session: &mut Session) {
        if let Some((_, speculator)) = &mut self.wanted {
            speculator.forget(session);
        }
    }

    /// Evaluates the next token of the text, of which at most `left` more are to follow, and puts the logits after it
    /// into `logits`; `false`: no drafts are wanted, and nothing was done.
    ///
    /// Drafts are chosen as `chooser` would choose, with the random numbers that the text will draw, up to a token of
    /// `eog`, which ends a text.
    pub fn advance(
        &mut self,
        session: &mut Session,
        id: u32,
        left: usize,
        chooser: &Chooser,
        eog: &[u32],
        logits: &mut Vec<f32>,
    ) -> Result<bool, EvalError> {
        let Some((_, speculator)) = &mut self.wanted else {
            return Ok(false);
        };
        let mut drafting = None;
        let mut guess = |logits: &[f32]| {
            // The chooser is copied for the first guess only: most calls find their token evaluated already.
            let chooser = drafting.get_or_insert_with(|| chooser.clone());
            let id = chooser.choose(logits).ok()??;
            (!eog.contains(&id)).then_some(id)
        };
        speculator.advance(session, id, left, &mut guess, logits)?;
        Ok(true)
    }
}
