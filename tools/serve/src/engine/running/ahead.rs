//! Tokens ahead of a text: what may be drafted, and what a text has of it.

use std::time::Instant;

use trine::Model;
use trine::generate::Chooser;

use super::Running;

impl Running {
    /// Whether the logits behind its prompt were there, and it has not ended.
    pub fn has_read_prompt(&self) -> bool {
        self.prompt_done.is_some() && !self.over
    }

    /// Bits per weight of its drafts.
    pub fn draft_bits(&self) -> u8 {
        self.drafting.bits
    }

    /// Most tokens that the next draft may have; 0 where there is none. The token behind a draft that is right to its
    /// end comes with it, and it is one of those that are left.
    pub fn most_drafted(&self) -> usize {
        if self.drafting.bits == 0 {
            return 0;
        }
        let left = self.left().map_or(usize::MAX, |n| n.saturating_sub(1));
        let room = self.n_ctx.saturating_sub(self.tokens.len() + 1);
        self.drafting.length().min(left).min(room)
    }

    /// A copy of what chooses its tokens.
    pub fn chooser(&self) -> Chooser {
        self.job.chooser.clone()
    }

    /// What `chooser` chooses from the logits of a draft, as the text's own would; `None` ends the draft: the text may
    /// end there.
    pub fn guess(&self, model: &Model, chooser: &mut Chooser, logits: &mut [f32]) -> Option<u32> {
        self.add_biases(logits);
        let id = chooser.choose(logits).ok()??;
        (!model.end_tokens().contains(&id)).then_some(id)
    }

    /// Chooses the next tokens: one from the logits behind the last one, and one more for every token of `drafted` that
    /// agrees with the choice before it, from the row of logits behind that token. How many agreed.
    pub fn follow(&mut self, model: &Model, rows: &mut [Vec<f32>], drafted: &[u32], now: Instant) -> usize {
        self.drafting.begin(drafted);
        for logits in rows {
            let before = self.drafting.right();
            self.advance(model, logits, now);
            if self.over || self.drafting.right() == before {
                break;
            }
        }
        let right = self.drafting.right();
        self.drafting.finish();
        right
    }

    pub(super) fn add_biases(&self, logits: &mut [f32]) {
        for &(id, bias) in &self.job.request.logit_bias {
            if bias > f32::NEG_INFINITY {
                logits[id as usize] += bias;
            }
        }
    }
}
