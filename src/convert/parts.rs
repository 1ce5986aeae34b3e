//! The parts that a block has.

use crate::arch::Tensor;

/// The parts of a block that some have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// True if it has experts; `None`: maybe.
    pub experts: Option<bool>,
    pub attends: bool,
    /// True if its queries attend to the keys and values of an earlier block: it may have none.
    pub shares: bool,
    pub recurs: bool,
    pub feeds: bool,
}

impl Parts {
    /// Everything that a block of the architecture may have.
    pub const ALL: Parts = Parts { experts: None, attends: true, shares: false, recurs: true, feeds: true };

    /// True if a block with these parts may lack the tensor.
    pub fn may_lack(self, t: &Tensor) -> bool {
        self.shares && ["attn_k", "attn_v"].iter().any(|p| t.place().starts_with(p))
    }

    /// True if a block with these parts has the tensor.
    pub fn has(self, t: &Tensor) -> bool {
        let place = t.place();
        let starts = |all: &[&str]| all.iter().any(|p| place.starts_with(p));
        if starts(&["ssm_", "shortconv.", "delta_", "kda_", "lightning_"]) {
            self.recurs
        } else if starts(&["attn_q", "attn_k", "attn_v", "attn_output.", "attn_gate", "attn_sinks"]) {
            self.attends
        } else if starts(&["ffn_", "exp_probs"]) {
            self.feeds
        } else {
            true
        }
    }
}
