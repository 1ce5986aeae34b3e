//! GLM 5.3 Flash: Kimi Delta Attention in most blocks, latent attention without positions in the others, to pools of
//! positions that an indexer chooses, and several residual streams that every sublayer mixes.

use super::indexed::INDEXER;
use super::kimi::KIMI_LINEAR;
use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::factors::joined;
use crate::arch::latent_parts::{EXPANSION_BY_HEAD, LATENT, LATENT_OUT, RANKED_QUERIES};
use crate::arch::parts::{ATTN_NORM, FFN_NORM, GATED_FFN, Group, MIXING_CONNECTIONS, begun};
use crate::arch::recurrent_parts::{KIMI, KIMI_GATES, KIMI_RATES_FLAT};
use crate::arch::rules::{
    Attention, ExpertRule, FeedForward, GateClamp, GatingRule, Mixing, Normalize, Recurrence, SharedWidth, Streams,
};
use crate::arch::{Arch, Gating};

/// Groups that both kinds of blocks begin with.
const GLM5_NEXT_MIXING: &[Group] = &[
    MIXING_CONNECTIONS,
    ATTN_NORM,
    RANKED_QUERIES,
    LATENT,
    EXPANSION_BY_HEAD,
    LATENT_OUT,
    KIMI,
    KIMI_RATES_FLAT,
    KIMI_GATES,
    FFN_NORM,
];

/// `glm5-next`.
pub const GLM5_NEXT: Arch = Arch {
    name: "glm5-next",
    models: "GLM 5.3 Flash",
    block: begun!(GLM5_NEXT_MIXING, GATED_FFN),
    expert_block: begun!(GLM5_NEXT_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    mixing: Mixing::ByHeads(Recurrence::BoundedOfLength),
    streams: Streams::Mixed,
    attention: Attention { indexed: true, ..KIMI_LINEAR.attention },
    feed_forward: FeedForward { clamp: GateClamp::BeforeEverywhere, ..KIMI_LINEAR.feed_forward },
    experts: ExpertRule {
        gating: GatingRule::Key(Some(Gating::Sigmoid)),
        normalize: Normalize::Key,
        shared: SharedWidth::Count,
        ..KIMI_LINEAR.experts
    },
    scaled: &[],
    ignored: &joined::<11>(
        &joined::<7>(INDEXER, &["indexer_compressor_gate.weight", "indexer_compressor_ape.weight"]),
        // the graph of Kimi Delta Attention has none
        KIMI_LINEAR.ignored,
    ),
    steered: false,
    checkpoints: &[],
    ..KIMI_LINEAR
};
