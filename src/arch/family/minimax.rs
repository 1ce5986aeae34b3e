//! MiniMax 01: lightning attention in most blocks, whose sublayers add to their normed input. MiniMax M3: attention to
//! blocks of positions that an indexer chooses. Without flash attention, which is what trine computes, the reference
//! attends to all positions and does not use the indexer's tensors.

use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, Group, HEAD_NORMS, OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, begun,
};
use crate::arch::recurrent_parts::LIGHTNING;
use crate::arch::rules::{
    ExpertRule, FeedForward, GatingRule, Mixing, Recurrence, Residual, ResidualScale, RopeRule, SharedWidth,
};
use crate::arch::{Activation, Arch};

/// `minimax-01`.
pub const MINIMAX_01: Arch = Arch {
    name: "minimax-01",
    models: "MiniMax Text 01, M1",
    expert_block: &[ATTN_NORM, QKV, LIGHTNING, ATTN_OUT, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    mixing: Mixing::ByPattern(Recurrence::Lightning),
    residual: Residual::Normed,
    residual_scale: ResidualScale::Key,
    rope: RopeRule::PARTIAL,
    ..Arch::DENSE
};

/// Groups that both kinds of blocks begin with.
const MINIMAX_M3_MIXING: &[Group] = &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM];

/// `minimax-m3`.
pub const MINIMAX_M3: Arch = Arch {
    name: "minimax-m3",
    models: "MiniMax M3",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: begun!(MINIMAX_M3_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL),
    expert_block: begun!(MINIMAX_M3_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED, QKV_BIAS_OPTIONAL),
    rope: RopeRule::PARTIAL,
    feed_forward: FeedForward { activation: Activation::OpenAiSwiglu, ..Arch::DENSE.feed_forward },
    experts: ExpertRule { gating: GatingRule::Key(None), shared: SharedWidth::Count, ..ExpertRule::KEYED },
    ignored: &["indexer.q_proj.weight", "indexer.k_proj.weight", "indexer.q_norm.weight", "indexer.k_norm.weight"],
    ..Arch::DENSE
};
