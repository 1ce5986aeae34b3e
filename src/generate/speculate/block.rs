//! Drafts of several tokens in one pass (DFlash): the last token of a text, and tokens in the place of those that follow,
//! attend to each other and to keys and values of the text.

use super::tail::{Guess, Tail};
use crate::cancel::CancelToken;
use crate::model::{DraftBlock, Weights};
use crate::pool::Pool;
use crate::step::{Engine, EvalError, Session, SessionOptions};

/// A model that drafts several tokens at once, behind keys and values in a session of another.
pub(super) struct Block {
    /// Over the pages of the other session; empty between drafts.
    session: Session,
    block: DraftBlock,
}

impl Block {
    /// `model` drafts behind what `read` has.
    pub fn new(model: &Weights, block: DraftBlock, pool: &Pool, read: &Session) -> Block {
        let engine = Engine::with_pages(model, pool, read.pages().clone());
        let options = SessionOptions { n_ctx: read.n_ctx(), n_ubatch: block.size };
        Block { session: Session::of_engine(&engine, options), block }
    }

    /// From now on `cancel` ends a draft.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        self.session.cancel_by(Some(cancel));
    }

    /// As [`Source::draft`](super::source::Source::draft), behind all positions of `read`.
    pub fn draft(&mut self, read: &Session, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Vec<u32>, EvalError> {
        let most = tail.most.min(self.block.size - 1);
        let mut tokens = vec![self.block.mask; most + 1];
        tokens[0] = tail.last;
        self.session.replace(read.part(read.n_past(), None));
        let mut rows = Vec::with_capacity(most);
        let done = self.session.eval(&tokens, 1, &mut |_, row| rows.push(row.to_vec()));
        // the pages are the other session's again
        self.session.truncate(0);
        done?;
        let mut drafted = Vec::with_capacity(most);
        drafted.extend(rows.iter().map_while(|row| guess(row)));
        Ok(drafted)
    }
}
