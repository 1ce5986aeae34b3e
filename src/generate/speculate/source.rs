//! Sources of drafts.

use super::borrower::Borrower;
use super::error::{SpeculateError, narrower};
use super::lookup;
use super::mtp::{Mtp, OwnHead};
use super::second::{Second, SecondModel};
use super::tail::{Guess, Tail};
use crate::cancel::CancelToken;
use crate::handle::Model;
use crate::kv::Sequence;
use crate::step::{EvalError, Session};

/// Where drafts come from. None of them changes a text.
#[derive(Clone, Debug)]
pub enum DraftSource {
    /// The same any-precision model, at so many bits per weight.
    Narrow(u8),
    /// Another model, smaller than that of the text. Their vocabularies may differ: tokens are the same where they
    /// stand for the same bytes.
    Model(Model),
    /// The model's own heads for multi-token prediction, which have to be loaded
    /// ([`OpenOptions::mtp`](crate::OpenOptions::mtp)), or a Gemma 4 assistant that was
    /// ([`OpenOptions::drafter`](crate::OpenOptions::drafter)).
    Mtp,
    /// An EAGLE-3 drafter, which has to be loaded with the model ([`OpenOptions::drafter`](crate::OpenOptions::drafter)).
    Eagle3,
    /// A DFlash drafter, which has to be loaded with the model in the same way.
    Dflash,
    /// The text itself: what followed its last tokens where they stood before.
    Text,
}

impl PartialEq for DraftSource {
    fn eq(&self, other: &DraftSource) -> bool {
        match (self, other) {
            (DraftSource::Narrow(a), DraftSource::Narrow(b)) => a == b,
            (DraftSource::Model(a), DraftSource::Model(b)) => a.is_same(b),
            (DraftSource::Mtp, DraftSource::Mtp)
            | (DraftSource::Eagle3, DraftSource::Eagle3)
            | (DraftSource::Dflash, DraftSource::Dflash)
            | (DraftSource::Text, DraftSource::Text) => true,
            _ => false,
        }
    }
}

/// A source whose drafts are made in sessions of its own, or in none: a second model, the model's own head, a drafter, or
/// the text.
#[derive(Clone)]
pub struct AsideSource(Kind);

#[derive(Clone)]
enum Kind {
    Text,
    Model(SecondModel),
    Mtp(OwnHead),
}

impl AsideSource {
    /// `wanted` for texts of `model`; `None` for a source that drafts in the session of the text.
    ///
    /// # Errors
    /// A second model whose tokens are of no use for this one; a head that was not loaded.
    pub fn new(wanted: &DraftSource, model: &Model) -> Result<Option<AsideSource>, SpeculateError> {
        let kind = match wanted {
            DraftSource::Narrow(_) => return Ok(None),
            DraftSource::Model(draft) => Kind::Model(SecondModel::new(model, draft)?),
            DraftSource::Mtp => Kind::Mtp(OwnHead::new(model)?),
            DraftSource::Eagle3 => Kind::Mtp(OwnHead::drafter(model, false)?),
            DraftSource::Dflash => Kind::Mtp(OwnHead::drafter(model, true)?),
            DraftSource::Text => Kind::Text,
        };
        Ok(Some(AsideSource(kind)))
    }

    /// At work on one text, in a context of `n_ctx` tokens.
    pub fn for_text(&self, n_ctx: usize) -> Aside {
        Aside(match &self.0 {
            Kind::Text => Work::Text,
            Kind::Model(second) => Work::Second(Box::new(second.for_text(n_ctx))),
            Kind::Mtp(head) => match head.borrower(n_ctx) {
                Some(borrower) => Work::Borrower(Box::new(borrower)),
                None => Work::Mtp(Box::new(head.for_text(n_ctx))),
            },
        })
    }

    /// [`Aside::hears`] of all that it works on.
    pub fn hears(&self) -> bool {
        matches!(self.0, Kind::Mtp(_))
    }
}

/// Drafts for one text that are not made in its session.
pub struct Aside(Work);

enum Work {
    Text,
    Second(Box<Second>),
    Mtp(Box<Mtp>),
    Borrower(Box<Borrower>),
}

impl Aside {
    /// From now on `cancel` ends a draft.
    pub(super) fn cancel_by(&mut self, cancel: CancelToken) {
        match &mut self.0 {
            Work::Text => {}
            Work::Second(second) => second.cancel_by(cancel),
            Work::Mtp(head) => head.cancel_by(cancel),
            Work::Borrower(head) => head.cancel_by(cancel),
        }
    }

    /// True if it needs the hidden states of the text, from its first token on ([`Aside::hear`]).
    pub fn hears(&self) -> bool {
        matches!(self.0, Work::Mtp(_) | Work::Borrower(_))
    }

    /// Takes in the hidden state of the token at `position` of the text.
    pub fn hear(&mut self, position: usize, state: &[f32]) {
        match &mut self.0 {
            Work::Mtp(head) => head.hear(position, state),
            Work::Borrower(head) => head.hear(position, state),
            Work::Text | Work::Second(_) => {}
        }
    }

    /// Shows it the text's own keys, where it attends to those: `keys` gives a sequence that begins as the text's. They are
    /// let go after the next draft.
    pub fn lend(&mut self, keys: impl FnOnce() -> Sequence) {
        if let Work::Borrower(head) = &mut self.0 {
            head.lend(keys());
        }
    }

    /// [`Aside::read`] where much waits for it already.
    ///
    /// # Errors
    /// As there.
    pub fn catch_up(&mut self, text: &[u32]) -> Result<(), EvalError> {
        match &mut self.0 {
            Work::Mtp(head) if head.waits() => head.read(text),
            _ => Ok(()),
        }
    }

    /// Forgets the hidden states that it heard: another text follows.
    pub(super) fn forget(&mut self) {
        match &mut self.0 {
            Work::Mtp(head) => head.forget(),
            Work::Borrower(head) => head.forget(),
            Work::Text | Work::Second(_) => {}
        }
    }

    /// Reads what it has not read of a text, so that the first draft takes no longer than the next ones.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn read(&mut self, text: &[u32]) -> Result<(), EvalError> {
        match &mut self.0 {
            Work::Text | Work::Borrower(_) => Ok(()),
            Work::Second(second) => second.read(text),
            Work::Mtp(head) => head.read(text),
        }
    }

    /// At most `most` tokens that may follow `last` behind `text`, which was [read](Aside::read); `guess` chooses them as
    /// the text's own chooser would. `None` where nothing was worth a guess.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn draft(
        &mut self,
        (text, last): (&[u32], u32),
        most: usize,
        guess: &mut dyn FnMut(&[f32]) -> Option<u32>,
    ) -> Result<Option<Vec<u32>>, EvalError> {
        let tail = Tail { text, last, most };
        match &mut self.0 {
            Work::Second(second) => second.draft(&tail, guess),
            Work::Mtp(head) => head.draft(&tail, guess),
            Work::Borrower(head) => head.draft(&tail, guess),
            Work::Text => Ok(lookup::draft(&tail)),
        }
    }
}

/// A source at work on one text.
pub(super) enum Source {
    Narrow(u8),
    Aside(Aside),
}

impl Source {
    /// The source `wanted` for a text in `session` of `model`.
    ///
    /// # Errors
    /// A second model whose tokens are of no use for this one.
    pub fn new(wanted: &DraftSource, model: &Model, session: &Session) -> Result<Source, SpeculateError> {
        Ok(match (AsideSource::new(wanted, model)?, wanted) {
            (Some(aside), _) => Source::Aside(aside.for_text(session.n_ctx())),
            (None, DraftSource::Narrow(bits)) => Source::Narrow(*bits),
            (None, _) => unreachable!("other sources draft aside"),
        })
    }

    /// Checks that it can draft for a session as that is now.
    ///
    /// # Errors
    /// A width that the model does not have, or that is not below the session's.
    pub fn check(&self, session: &Session) -> Result<(), SpeculateError> {
        let &Source::Narrow(draft) = self else {
            return Ok(());
        };
        session.model().check_width(draft)?;
        narrower(draft, session.bits().unwrap_or(0))
    }

    /// From now on `cancel` ends a draft.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        if let Some(aside) = self.aside() {
            aside.cancel_by(cancel);
        }
    }

    /// The drafter that is not the model of the text at fewer bits.
    pub fn aside(&mut self) -> Option<&mut Aside> {
        match self {
            Source::Aside(aside) => Some(aside),
            Source::Narrow(_) => None,
        }
    }

    /// Reads what it has not read of a long text, so that the first draft takes no longer than the next ones.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn read(&mut self, text: &[u32]) -> Result<(), EvalError> {
        self.aside().map_or(Ok(()), |aside| aside.read(text))
    }

    /// The tokens that may follow `tail`, which `guess` chooses as the text's own chooser would; `None` where nothing
    /// was worth a guess. In `session` the positions behind those of the text are spoilt, and so is its width.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn draft(
        &mut self,
        session: &mut Session,
        tail: &Tail<'_>,
        guess: &mut Guess<'_>,
    ) -> Result<Option<Vec<u32>>, EvalError> {
        match self {
            Source::Narrow(bits) => narrow(session, *bits, tail, guess).map(Some),
            Source::Aside(aside) => {
                aside.lend(|| session.part(session.n_past(), None));
                aside.draft((tail.text, tail.last), tail.most, guess)
            }
        }
    }
}

/// A draft by the model of the text at fewer bits. The positions of `text` that the session does not have come first.
fn narrow(session: &mut Session, bits: u8, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Vec<u32>, EvalError> {
    set(session, bits);
    let mut next = [&tail.text[session.n_past()..], &[tail.last]].concat();
    let mut drafted = Vec::with_capacity(tail.most);
    while drafted.len() < tail.most {
        let mut row = Vec::new();
        session.eval(&next, next.len() - 1, &mut |_, logits| row.extend_from_slice(logits))?;
        let Some(id) = guess(&row) else {
            break;
        };
        drafted.push(id);
        next = vec![id];
    }
    Ok(drafted)
}

/// Both widths were checked when they were chosen.
pub(super) fn set(session: &mut Session, bits: u8) {
    let done = session.set_bits(bits);
    debug_assert!(done.is_ok(), "the width is in the file");
}
