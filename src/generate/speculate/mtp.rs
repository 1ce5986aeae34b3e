//! Drafts by a model's own heads for multi-token prediction (llama.cpp's `--spec-type draft-mtp`).
//!
//! At a position a head reads the token there and the hidden state that the model, or the head itself, had at the position
//! before. The model's own states are heard while it evaluates a text; where drafts begin the head reads the text with them,
//! so that its keys and values are those of the text whatever was drafted before: what a draft adds is forgotten first.

use super::error::SpeculateError;
use super::tail::{Guess, Tail};
use super::trail::Trail;
use crate::cancel::CancelToken;
use crate::handle::Model;
use crate::step::{EvalError, Session, SessionOptions, Sink};

/// Tokens that go through a head together while it reads, and states that wait for it at most, or nearly so.
const AT_ONCE: usize = 512;
/// Positions at the end of a text whose states are kept after they were read, for texts that are taken up a little earlier.
const KEPT: usize = 64;

/// A model whose heads draft.
#[derive(Clone)]
pub(super) struct OwnHeads(Model);

impl OwnHeads {
    /// Those of `model`.
    ///
    /// # Errors
    /// None were loaded.
    pub fn new(model: &Model) -> Result<OwnHeads, SpeculateError> {
        match model.weights().mtp_heads().is_empty() {
            true => Err(SpeculateError::NoHeads),
            false => Ok(OwnHeads(model.clone())),
        }
    }

    /// For a text in a context of `n_ctx` tokens.
    pub fn for_text(&self, n_ctx: usize) -> Mtp {
        let heads = self.0.weights().mtp_heads();
        // On the threads of the text, which wait meanwhile.
        let options = SessionOptions { n_ctx, n_ubatch: AT_ONCE };
        Mtp {
            trail: Trail::new(heads.first().map_or(1, |head| head.reads_hidden())),
            heads: heads.iter().map(|head| Session::new(head, self.0.pool(), options)).collect(),
            first: 0,
            read: Vec::new(),
        }
    }
}

/// Heads that draft for one text, each in a session of its own, which follows the text.
pub(super) struct Mtp {
    heads: Vec<Session>,
    trail: Trail,
    /// The position of the text that the sessions begin with: states of earlier ones were not heard.
    first: usize,
    /// The tokens in the sessions.
    read: Vec<u32>,
}

/// The last of some rows of a head.
#[derive(Default)]
struct Last {
    logits: Vec<f32>,
    state: Vec<f32>,
}

impl Sink for Last {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, logits: &[f32]) {
        self.logits = logits.to_vec();
    }

    fn hidden(&mut self, _: usize, _: usize, state: &[f32]) {
        self.state = state.to_vec();
    }
}

impl Mtp {
    /// From now on `cancel` ends a draft.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        self.heads.iter_mut().for_each(|head| head.cancel_by(Some(cancel.clone())));
    }

    /// Takes in the model's hidden state at `position` of the text.
    pub fn hear(&mut self, position: usize, state: &[f32]) {
        self.trail.hear(position, state);
    }

    /// True if so many states wait that they should be read.
    pub fn waits(&self) -> bool {
        self.trail.positions().len() >= AT_ONCE + KEPT
    }

    /// Forgets all of the text.
    pub fn forget(&mut self) {
        self.trail.forget();
        self.restart(0);
    }

    /// Follows `text`: forgets what the sessions have beyond it and reads what is new. A text whose states were not heard
    /// is read from where they are known, or not at all.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn read(&mut self, text: &[u32]) -> Result<(), EvalError> {
        let there = text.get(self.first..).unwrap_or_default();
        let same = self.read.iter().zip(there).take_while(|(a, b)| a == b).count();
        self.keep(same);
        let known = self.trail.positions();
        if known.end < text.len() || known.start > text.len() {
            return Ok(());
        }
        if known.start > self.next() {
            self.restart(known.start);
        }
        let new = &text[self.next()..];
        let states = self.trail.before(self.next()..text.len());
        let mut heads = self.heads.iter_mut();
        let done = heads.try_for_each(|head| head.eval_behind(states, new, new.len(), &mut Last::default()));
        if done.is_err() {
            self.keep(self.read.len());
            return done;
        }
        self.read.extend_from_slice(new);
        self.trail.forget_before(text.len().saturating_sub(KEPT));
        Ok(())
    }

    /// As [`Source::draft`](super::source::Source::draft), behind a text that was [read](Mtp::read).
    pub fn draft(&mut self, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Option<Vec<u32>>, EvalError> {
        let at = tail.text.len();
        if self.next() != at || !self.trail.positions().contains(&at) {
            return Ok(None);
        }
        self.behind(at, tail, guess).map(Some)
    }

    /// The draft behind position `at`, which is left in the sessions. The first token comes from the first head, and so on;
    /// a head that stands alone makes all of them from its own states.
    fn behind(&mut self, at: usize, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Vec<u32>, EvalError> {
        let columns = self.trail.before(at..at + 1).len();
        let most = match self.heads.len() {
            1 => tail.most,
            heads => tail.most.min(heads),
        };
        let (mut tokens, mut states) = (vec![tail.last], self.trail.before(at..at + 1).to_vec());
        while tokens.len() <= most {
            let number = (tokens.len() - 1).min(self.heads.len() - 1);
            let head = &mut self.heads[number];
            let done = head.n_past() - self.read.len();
            let mut last = Last::default();
            head.eval_behind(&states[done * columns..], &tokens[done..], tokens.len() - done - 1, &mut last)?;
            let Some(id) = guess(&last.logits) else {
                break;
            };
            tokens.push(id);
            states.extend(last.state);
        }
        Ok(tokens.split_off(1))
    }

    /// The position that is read next.
    fn next(&self) -> usize {
        self.first + self.read.len()
    }

    /// Forgets what the sessions have behind their first `len` positions.
    fn keep(&mut self, len: usize) {
        for head in &mut self.heads {
            head.truncate(len);
        }
        self.read.truncate(len);
    }

    /// Forgets all that was read; position `first` comes next.
    fn restart(&mut self, first: usize) {
        self.keep(0);
        self.first = first;
    }
}
