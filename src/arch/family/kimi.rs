//! Kimi Linear: Kimi Delta Attention in most blocks, latent attention without positions in the others. Kimi K3: the
//! same with bounded decays, gates on what attends, narrow experts, and blocks that choose among the residual streams
//! of earlier ones. Ling 3: bounded decays too, and latent attention with positions and gates.

use super::deepseek2::DEEPSEEK2;
use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, NARROW_EXPERTS, SHARED};
use crate::arch::latent_parts::{
    EXPANSION_BY_HEAD, EXPANSION_EITHER, LATENT, LATENT_GATE_OPTIONAL, LATENT_OUT, QUERIES, RANKED_QUERIES_OPTIONAL,
};
use crate::arch::parts::{
    ATTN_HEAD_GATE, ATTN_NORM, ENDS, FFN_NORM, GATED_FFN, Group, OUTPUT_OR_TIED, OUTPUT_REQUIRED, RESIDUAL_SCORES,
    RESIDUAL_SCORES_OF_OUTPUT, begun,
};
use crate::arch::recurrent_parts::{KIMI, KIMI_GATES, KIMI_RATES, KIMI_RATES_FLAT, WIDE_GATES, WIDE_OUTPUT_GATE};
use crate::arch::rules::{
    Attention, ExpertRule, FeedForward, GateClamp, GatingRule, Mixing, Normalize, Recurrence, RopeRule, Sections,
    SharedWidth,
};
use crate::arch::{Activation, Arch};

/// Groups that both kinds of blocks begin with.
const KIMI_LINEAR_MIXING: &[Group] =
    &[ATTN_NORM, QUERIES, LATENT, EXPANSION_BY_HEAD, LATENT_OUT, KIMI, KIMI_RATES, KIMI_GATES, FFN_NORM];

/// `kimi-linear`.
pub const KIMI_LINEAR: Arch = Arch {
    name: "kimi-linear",
    models: "Kimi Linear 48B-A3B",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: begun!(KIMI_LINEAR_MIXING, GATED_FFN),
    expert_block: begun!(KIMI_LINEAR_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    mixing: Mixing::ByHeads(Recurrence::Kimi),
    attention: Attention { latent: true, ..Attention::USUAL },
    rope: RopeRule::NONE,
    experts: ExpertRule {
        gating: GatingRule::Key(None),
        normalize: Normalize::Always,
        shared: SharedWidth::CountOrOne,
        ..DEEPSEEK2.experts
    },
    // the graph of Kimi Delta Attention has none
    ignored: &["attn_q.bias", "attn_k.bias", "attn_v.bias"],
    checkpoints: &[],
    ..DEEPSEEK2
};

/// Groups that both kinds of blocks begin with.
const KIMI_K3_MIXING: &[Group] = &[
    ATTN_NORM,
    RESIDUAL_SCORES,
    QUERIES,
    RANKED_QUERIES_OPTIONAL,
    LATENT,
    EXPANSION_EITHER,
    LATENT_GATE_OPTIONAL,
    LATENT_OUT,
    KIMI,
    KIMI_RATES_FLAT,
    WIDE_OUTPUT_GATE,
    FFN_NORM,
];

/// `kimi-k3`.
pub const KIMI_K3: Arch = Arch {
    name: "kimi-k3",
    models: "Kimi K3",
    ends: &[ENDS, OUTPUT_REQUIRED, RESIDUAL_SCORES_OF_OUTPUT],
    block: begun!(KIMI_K3_MIXING, GATED_FFN),
    expert_block: begun!(KIMI_K3_MIXING, NARROW_EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    mixing: Mixing::ByHeads(Recurrence::BoundedByRate),
    keeps_residuals: true,
    feed_forward: FeedForward {
        // the numbers are keys of the file
        activation: Activation::Situ([1.0; 2]),
        ..KIMI_LINEAR.feed_forward
    },
    experts: ExpertRule { normalize: Normalize::Key, latent: true, ..KIMI_LINEAR.experts },
    scaled: &[],
    checkpoints: &[],
    ..KIMI_LINEAR
};

/// Groups that both kinds of blocks begin with.
const BAILINGMOE3_MIXING: &[Group] = &[
    ATTN_NORM,
    QUERIES,
    RANKED_QUERIES_OPTIONAL,
    LATENT,
    EXPANSION_BY_HEAD,
    ATTN_HEAD_GATE,
    LATENT_OUT,
    KIMI,
    KIMI_RATES,
    WIDE_GATES,
    FFN_NORM,
];

/// `bailingmoe3`.
pub const BAILINGMOE3: Arch = Arch {
    name: "bailingmoe3",
    models: "Ling 3",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: begun!(BAILINGMOE3_MIXING, GATED_FFN),
    expert_block: begun!(BAILINGMOE3_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    mixing: Mixing::ByHeads(Recurrence::Bounded),
    rope: RopeRule { partial: true, sections: Sections::IfAny, ..RopeRule::ADJACENT },
    feed_forward: FeedForward { clamp: GateClamp::After, ..KIMI_LINEAR.feed_forward },
    experts: ExpertRule { normalize: Normalize::Key, shared: SharedWidth::KeyOrCountOrOne, ..KIMI_LINEAR.experts },
    scaled: &[],
    checkpoints: &[],
    ..KIMI_LINEAR
};
