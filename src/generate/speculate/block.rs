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
    pool: Pool,
}

impl Block {
    /// `model` drafts behind what `read` has.
    pub fn new(model: &Weights, block: DraftBlock, pool: &Pool, read: &Session) -> Block {
        let engine = Engine::with_pages(model, pool, read.pages().clone());
        let options = SessionOptions { n_ctx: read.n_ctx(), n_ubatch: block.size };
        Block { session: Session::of_engine(&engine, options), block, pool: pool.clone() }
    }

    /// From now on `cancel` ends a draft.
    pub fn cancel_by(&mut self, cancel: CancelToken) {
        self.session.cancel_by(Some(cancel));
    }

    /// As [`Source::draft`](super::source::Source::draft), behind all positions of `read`.
    pub fn draft(&mut self, read: &Session, tail: &Tail<'_>, guess: &mut Guess<'_>) -> Result<Vec<u32>, EvalError> {
        let first = usize::from(!self.block.anchored);
        let most = tail.most.min(self.block.size - first);
        let mut tokens = vec![self.block.mask; most + first];
        let Some(place) = tokens.first_mut() else {
            return Ok(Vec::new());
        };
        *place = tail.last;
        self.session.replace(read.part(read.n_past(), None));
        let mut rows = Vec::with_capacity(most);
        let done = self.session.eval(&tokens, first, &mut |_, row| rows.push(row.to_vec()));
        // the pages are the other session's again
        self.session.truncate(0);
        done?;
        let (mut drafted, mut before) = (Vec::with_capacity(most), tail.last);
        for mut row in rows {
            if let Some(biases) = self.pool.install(|| self.session.model().biases_behind(before)) {
                row.iter_mut().zip(biases).for_each(|(logit, bias)| *logit += bias);
                before = last_of_largest(&row);
            }
            let Some(id) = guess(&row) else {
                break;
            };
            drafted.push(id);
        }
        Ok(drafted)
    }
}

/// The place of the largest number, the last one of equals as in ggml's `argmax`.
fn last_of_largest(row: &[f32]) -> u32 {
    let (mut largest, mut place) = (f32::NEG_INFINITY, 0);
    for (i, &x) in row.iter().enumerate() {
        largest = if largest > x { largest } else { x };
        if largest == x {
            place = i;
        }
    }
    place as u32
}
