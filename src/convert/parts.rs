//! The parts that a block has.

use crate::arch::Tensor;

/// The parts of a block that some have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// True if it has experts; `None`: maybe.
    pub experts: Option<bool>,
    pub attends: bool,
    pub recurs: bool,
    pub feeds: bool,
}

impl Parts {
    /// Everything that a block of the architecture may have.
    pub const ALL: Parts = Parts { experts: None, attends: true, recurs: true, feeds: true };

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
