//! SmallThinker: the router sees the block's input, experts have ReLU gates.

use crate::arch::expert_parts::EXPERTS;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, FFN_NORM, QKV, QKV_BIAS_OPTIONAL};
use crate::arch::rules::{
    ExpertRule, ExpertWidth, FeedForward, GatingRule, RopeLayers, RopeRule, WindowRope, WindowRule, WindowSize,
};
use crate::arch::{Activation, Arch};

/// `smallthinker`.
pub const SMALLTHINKER: Arch = Arch {
    name: "smallthinker",
    models: "SmallThinker 4B-A0.6B, 21B-A3B",
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    rope: RopeRule { layers: RopeLayers::ButFirstOf(4), ..RopeRule::HALVES },
    window: Some(WindowRule {
        size: WindowSize::Given(4096),
        global_first: true,
        rope: WindowRope::KEYED,
        ..WindowRule::every(4)
    }),
    feed_forward: FeedForward { activation: Activation::Relu, ..Arch::DENSE.feed_forward },
    experts: ExpertRule {
        gating: GatingRule::Key(None),
        width: ExpertWidth::Key,
        early_router: true,
        ..ExpertRule::USUAL
    },
    ..Arch::DENSE
};
