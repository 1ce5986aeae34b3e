//! Drafts by a model's own head for multi-token prediction (llama.cpp's `--spec-type draft-mtp`), or by a drafter that was
//! loaded with it (`draft-eagle3`, `draft-dflash`).
//!
//! At a position the head reads the token there and the hidden state that the model, or the head itself, had at the position
//! before. The model's own states are heard while it evaluates a text; where drafts begin the head reads the text with them,
//! so that its keys and values are those of the text whatever was drafted before: what a draft adds is forgotten first.
//! A drafter hears inputs of the model's blocks. EAGLE-3 makes of them the states that it reads, and counts its positions from
//! the second token on: the first one has no state before it. DFlash makes keys and values of them, at the position of their
//! token, and drafts all tokens in one pass behind these.

use std::ops::Range;

use super::block::Block;
use super::borrower::Borrower;
use super::error::SpeculateError;
use super::last::{Last, Nothing};
use super::tail::{Guess, Tail};
use super::trail::Trail;
use crate::cancel::CancelToken;
use crate::handle::Model;
use crate::model::Weights;
use crate::pool::Pool;
use crate::step::{EvalError, Session, SessionOptions};

/// Tokens that go through the head together while it reads, and states that wait for it at most, or nearly so.
const AT_ONCE: usize = 512;
/// Positions at the end of a text whose states are kept after they were read, for texts that are taken up a little earlier.
const KEPT: usize = 64;

/// The head of a model that drafts.
#[derive(Clone)]
pub(super) struct OwnHead {
    head: Weights,
    /// Heads that draft further tokens.
    more: Vec<Weights>,
    pool: Pool,
}

impl OwnHead {
    /// The head of `model` itself, or what was loaded with it and reads its hidden states as one does.
    ///
    /// # Errors
    /// None was loaded; a drafter that reads other states.
    pub fn new(model: &Model) -> Result<OwnHead, SpeculateError> {
        let other = match model.weights().mtp_head() {
            Some(_) => SpeculateError::OtherDrafter,
            None => SpeculateError::NoHead,
        };
        OwnHead::loaded(model, false).ok_or(other)
    }

    /// The head at work on a text in a context of `n_ctx` tokens, where it attends to the text's own keys.
    pub fn borrower(&self, n_ctx: usize) -> Option<Borrower> {
        self.head.borrows_keys().then(|| Borrower::new(&self.head, &self.pool, n_ctx))
    }

    /// The drafter that was loaded with `model`, which drafts several tokens `at_once` or one by one.
    ///
    /// # Errors
    /// None was; one that drafts otherwise.
    pub fn drafter(model: &Model, at_once: bool) -> Result<OwnHead, SpeculateError> {
        let other = match model.weights().mtp_head() {
            Some(_) => SpeculateError::OtherDrafter,
            None => SpeculateError::NoDrafter,
        };
        let drafter = OwnHead::loaded(model, true).ok_or(other)?;
        match drafter.head.key_reader().is_some() == at_once {
            true => Ok(drafter),
            false => Err(SpeculateError::OtherDrafter),
        }
    }

    fn loaded(model: &Model, reads_inputs: bool) -> Option<OwnHead> {
        let head = model.weights().mtp_head().filter(|head| head.reads_inputs() == reads_inputs)?;
        let more = model.weights().mtp_heads()[1..].to_vec();
        Some(OwnHead { head: head.clone(), more, pool: model.pool().clone() })
    }

    /// For a text in a context of `n_ctx` tokens.
    pub fn for_text(&self, n_ctx: usize) -> Mtp {
        let OwnHead { head, more, pool } = self;
        // On the threads of the text, which wait meanwhile.
        let session =
            |model: &Weights, n_ctx: usize| Session::new(model, pool, SessionOptions { n_ctx, n_ubatch: AT_ONCE });
        let trail = Trail::new(head.hears());
        let (session, block, first) = match head.key_reader() {
            Some((reader, block)) => {
                let session = session(reader, n_ctx + block.size);
                let block = Block::new(head, block, pool, &session);
                (session, Some(block), 0)
            }
            None => (session(head, n_ctx), None, usize::from(head.reads_inputs())),
        };
        let more = more.iter().map(|head| Session::new(head, pool, SessionOptions { n_ctx, n_ubatch: AT_ONCE }));
        let more = more.collect();
        Mtp { session, block, more, pool: pool.clone(), trail, first, least: first, read: Vec::new() }
    }
}

/// A head that drafts for one text, in a session of its own, which follows the text.
pub(super) struct Mtp {
    session: Session,
    /// Drafts behind the session, where that only reads.
    block: Option<Block>,
    /// The sessions of heads that draft further tokens; they read the same.
    more: Vec<Session>,
    pool: Pool,
    trail: Trail,
    /// The position of the text that the session begins with: states of earlier ones were not heard.
    first: usize,
    /// The first position of a text that can be read.
    least: usize,
    /// The tokens of the text in the session; behind them may be those of a draft.
    read: Vec<u32>,
}

impl Mtp {
    /// From now on `cancel` ends a draft.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        if let Some(block) = &mut self.block {
            block.cancel_by(cancel.clone());
        }
        self.more.iter_mut().for_each(|session| session.cancel_by(Some(cancel.clone())));
        self.session.cancel_by(Some(cancel));
    }

    /// Takes in the model's hidden state at `position` of the text.
    pub fn hear(&mut self, position: usize, state: &[f32]) {
        self.trail.hear(position, state);
    }

    /// True if enough states wait to be read.
    pub fn waits(&self) -> bool {
        self.trail.positions().len() >= AT_ONCE + KEPT
    }

    /// Forgets all of the text.
    pub fn forget(&mut self) {
        self.trail.forget();
        self.restart(self.least);
    }

    /// Follows `text`: forgets what the session has beyond it and reads what is new. A text whose states were not heard
    /// is read from where they are known, or not at all.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn read(&mut self, text: &[u32]) -> Result<(), EvalError> {
        let there = text.get(self.first..).unwrap_or_default();
        let same = self.read.iter().zip(there).take_while(|(a, b)| a == b).count();
        self.keep(same);
        let known = self.known();
        if known.end < text.len() || known.start > text.len() {
            return Ok(());
        }
        if known.start > self.next() {
            self.restart(known.start);
        }
        if text.len() < self.next() {
            return Ok(());
        }
        let new = &text[self.next()..];
        let states = self.states(self.next()..text.len());
        self.session.eval_behind(&states, new, new.len(), &mut Nothing)?;
        for session in &mut self.more {
            session.eval_behind(&states, new, new.len(), &mut Nothing)?;
        }
        self.read.extend_from_slice(new);
        self.trail.forget_before(text.len().saturating_sub(KEPT));
        Ok(())
    }

    /// As [`Source::draft`](super::source::Source::draft), behind a text that was [read](Mtp::read). Every token but the
    /// first comes from the head's own state.
    pub fn draft(&mut self, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Option<Vec<u32>>, EvalError> {
        let at = tail.text.len();
        if self.next() != at || !self.trail.positions().contains(&at) {
            return Ok(None);
        }
        if let Some(block) = &mut self.block {
            return block.draft(&self.session, tail, guess).map(Some);
        }
        if !self.more.is_empty() {
            return self.chained(tail, guess).map(Some);
        }
        let (mut token, mut state) = (tail.last, self.states(at..at + 1));
        let mut drafted = Vec::with_capacity(tail.most);
        while drafted.len() < tail.most {
            let mut last = Last::default();
            self.session.eval_behind(&state, &[token], 0, &mut last)?;
            let Some(id) = guess(&last.logits) else {
                break;
            };
            drafted.push(id);
            (token, state) = (id, last.state);
        }
        Ok(Some(drafted))
    }

    /// A draft by several heads, each of which reads all tokens of the draft before it, and the states that the heads
    /// before it had behind them.
    fn chained(&mut self, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Vec<u32>, EvalError> {
        let at = tail.text.len();
        let (mut tokens, mut states) = (vec![tail.last], self.states(at..at + 1));
        let heads = [&mut self.session].into_iter().chain(&mut self.more);
        for session in heads.take(tail.most) {
            let mut last = Last::default();
            let read = session.mark();
            session.eval_behind(&states, &tokens, tokens.len() - 1, &mut last)?;
            session.restore(&read);
            let Some(id) = guess(&last.logits) else {
                break;
            };
            tokens.push(id);
            states.extend(last.state);
        }
        Ok(tokens.split_off(1))
    }

    /// Positions between that of a token and that at which its state is read: none where keys are made of it.
    fn lead(&self) -> usize {
        usize::from(self.block.is_some())
    }

    /// The positions whose states are here.
    fn known(&self) -> Range<usize> {
        let Range { start, end } = self.trail.positions();
        start.saturating_sub(self.lead())..end - self.lead()
    }

    /// The states that are read at some positions of the text.
    fn states(&self, positions: Range<usize>) -> Vec<f32> {
        let heard = self.trail.before(positions.start + self.lead()..positions.end + self.lead());
        self.pool.install(|| self.session.model().fused(heard))
    }

    /// The position that is read next.
    fn next(&self) -> usize {
        self.first + self.read.len()
    }

    /// Forgets what the session has behind its first `len` positions.
    fn keep(&mut self, len: usize) {
        self.session.truncate(len);
        self.more.iter_mut().for_each(|session| _ = session.truncate(len));
        self.read.truncate(len);
    }

    /// Forgets all that was read; position `first` comes next.
    fn restart(&mut self, first: usize) {
        self.keep(0);
        self.first = first;
    }
}
