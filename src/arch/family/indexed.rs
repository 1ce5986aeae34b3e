//! Latent attention to positions that an indexer chooses: DeepSeek 3.2, GLM 5, dots.note, Hunyuan 4. In sequences that
//! are not longer than what it may choose it chooses all, and its tensors are of no use.

use super::deepseek2::{DEEPSEEK2, MISTRAL4};
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::factors::ALL_SCALES;
use crate::arch::latent_parts::{EXPANSION_BY_HEAD, LATENT, LATENT_GATE, LATENT_OUT, RANKED_QUERIES, TURNED_KEY_NORM};
use crate::arch::parts::{
    ATTN_HEAD_GATE, ATTN_NORM, CONNECTIONS, ENDS, FFN_NORM, GATED_FFN, Group, LAST_CONNECTION, OUTPUT_REQUIRED, SINKS,
    begun,
};
use crate::arch::rules::{
    Attention, ExpertRule, GatingRule, RopeRule, ScoreScale, Temperature, WindowBase, WindowRope, WindowRule, YarnLog,
};
use crate::arch::rules::{FeedForward, GateClamp};
use crate::arch::{Arch, Gating};

/// The indexer's tensors.
const INDEXER: &[&str] = &[
    "indexer.k_norm.weight",
    "indexer.k_norm.bias",
    "indexer.proj.weight",
    "indexer.attn_k.weight",
    "indexer.attn_q_b.weight",
];

/// Groups that both kinds of blocks begin with.
const DEEPSEEK32_MIXING: &[Group] = &[ATTN_NORM, RANKED_QUERIES, LATENT, EXPANSION_BY_HEAD, LATENT_OUT, FFN_NORM];

/// `deepseek32`.
pub const DEEPSEEK32: Arch = Arch {
    name: "deepseek32",
    models: "DeepSeek 3.2",
    block: begun!(DEEPSEEK32_MIXING, GATED_FFN),
    expert_block: begun!(DEEPSEEK32_MIXING, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED),
    attention: Attention { indexed: true, temperature: Temperature::None, ..DEEPSEEK2.attention },
    rope: MISTRAL4.rope,
    experts: ExpertRule { gating: GatingRule::Key(None), ..DEEPSEEK2.experts },
    scaled: ALL_SCALES,
    ignored: INDEXER,
    checkpoints: &[],
    ..DEEPSEEK2
};

/// `glm-dsa`.
pub const GLM_DSA: Arch = Arch {
    name: "glm-dsa",
    models: "GLM 5, 5.1, 5.2",
    rope: RopeRule { yarn_log: YarnLog::None, ..DEEPSEEK32.rope },
    experts: ExpertRule { gating: GatingRule::Key(Some(Gating::Sigmoid)), ..DEEPSEEK32.experts },
    checkpoints: &[],
    ..DEEPSEEK32
};

/// Groups that both kinds of blocks begin with.
const DOTS3NOTE_MIXING: &[Group] =
    &[ATTN_NORM, RANKED_QUERIES, LATENT, TURNED_KEY_NORM, EXPANSION_BY_HEAD, ATTN_HEAD_GATE, LATENT_OUT, FFN_NORM];

/// `dots3note`: windows in most layers, a norm of the keys' turned elements, and a gate on every head's output.
pub const DOTS3NOTE: Arch = Arch {
    name: "dots3note",
    models: "dots.note 288B-A19B",
    block: begun!(DOTS3NOTE_MIXING, GATED_FFN),
    expert_block: begun!(DOTS3NOTE_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    attention: Attention { scale: ScoreScale::HeadSize, ..DEEPSEEK32.attention },
    rope: GLM_DSA.rope,
    window: Some(WindowRule { rope: WindowRope { base: WindowBase::Key, ..WindowRope::SAME }, ..WindowRule::every(1) }),
    checkpoints: &[],
    ..DEEPSEEK32
};

/// Groups that both kinds of blocks begin with.
const HY_V4_MIXING: &[Group] =
    &[CONNECTIONS, ATTN_NORM, RANKED_QUERIES, LATENT, EXPANSION_BY_HEAD, SINKS, LATENT_GATE, LATENT_OUT, FFN_NORM];

/// `hy_v4`: several residual streams side by side, sinks, and gates on every element of the heads' outputs.
pub const HY_V4: Arch = Arch {
    name: "hy_v4",
    models: "Hunyuan 4",
    ends: &[ENDS, OUTPUT_REQUIRED, LAST_CONNECTION],
    block: begun!(HY_V4_MIXING, GATED_FFN),
    expert_block: begun!(HY_V4_MIXING, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED),
    streams: true,
    attention: Attention { scale: ScoreScale::HeadSize, ..DEEPSEEK32.attention },
    rope: GLM_DSA.rope,
    feed_forward: FeedForward { clamp: GateClamp::Before, ..DEEPSEEK32.feed_forward },
    scaled: &[],
    steered: false,
    checkpoints: &[],
    ..DEEPSEEK32
};
