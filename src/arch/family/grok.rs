//! Mixtures of many parameters: Grok (a dense network beside the experts, bounded scores), DBRX (layer norms), Arctic
//! (the experts see the block's input).

use crate::arch::expert_parts::{EXPERT_NORM, EXPERTS};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_NORM, ENDS, FFN_NORM, FFN_NORM_ATTN_OUT, GATED_FFN_OPTIONAL, LAYER_OUT_NORM,
    OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, SQUARE_FFN,
};
use crate::arch::rules::{
    Attention, EmbeddingScale, ExpertRule, ExpertWidth, FeedForward, LogitCap, LogitScale, NormKind, Output, RopeRule,
    ScoreCap, ScoreScale,
};
use crate::arch::{Activation, Arch};

/// `grok`.
pub const GROK: Arch = Arch {
    name: "grok",
    models: "Grok 1, Grok 2",
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        ATTN_OUT_NORM,
        FFN_NORM,
        EXPERTS,
        GATED_FFN_OPTIONAL,
        LAYER_OUT_NORM,
        QKV_BIAS_OPTIONAL,
    ],
    embedding_scale: EmbeddingScale::Key(78.383_675),
    attention: Attention { scale: ScoreScale::One, softcap: ScoreCap::Scaled(30.0, 0.088_388_346), ..Attention::USUAL },
    rope: RopeRule { beta_fast: 8.0, ..RopeRule::HALVES },
    feed_forward: FeedForward { activation: Activation::Gelu, ..Arch::DENSE.feed_forward },
    experts: ExpertRule {
        width: ExpertWidth::KeyOrFull,
        beside: Some(std::f32::consts::FRAC_1_SQRT_2),
        ..ExpertRule::USUAL
    },
    output: Output {
        input_width: None,
        scale: LogitScale::MultiplyOr(0.577_350_26),
        softcap: LogitCap::KeyOr(0.0),
        factored: true,
    },
    ..Arch::DENSE
};

/// `dbrx`.
pub const DBRX: Arch = Arch {
    name: "dbrx",
    models: "DBRX",
    ends: &[ENDS, OUTPUT_REQUIRED],
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM_ATTN_OUT, EXPERTS],
    norm: NormKind::Layer,
    attention: Attention { clamp: true, ..Attention::USUAL },
    ..Arch::DENSE
};

/// `arctic`.
pub const ARCTIC: Arch = Arch {
    name: "arctic",
    models: "Snowflake Arctic",
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, SQUARE_FFN, EXPERT_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    rope: RopeRule::ADJACENT,
    ..Arch::DENSE
};
