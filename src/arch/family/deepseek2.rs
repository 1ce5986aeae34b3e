//! Latent attention: DeepSeek 2 and 3, Mistral Large 3 and 4, MiniCPM 3, PLM.

use super::deepseek::DEEPSEEK;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS_OR_FUSED, SHARED};
use crate::arch::factors::ATTN_OUT_SCALE;
use crate::arch::latent_parts::{
    EXPANSION, EXPANSION_EITHER, LATENT, LATENT_OUT, QUERIES, RANKED_QUERIES, RANKED_QUERIES_OPTIONAL,
};
use crate::arch::parts::{ATTN_NORM, ENDS, FFN_NORM, GATED_FFN, OUTPUT_OR_TIED, PLAIN_FFN, ROPE_FACTORS_BY_CONTEXT};
use crate::arch::rules::{
    Attention, EmbeddingScale, ExpertRule, FeedForward, GatingRule, Normalize, Output, ResidualScale, RopeRule,
    ScoreScale, Temperature, YarnLog,
};
use crate::arch::{Activation, Arch};

/// Tokens of GLM 4.7 Flash's vocabulary, whose first files do not say how experts are weighed.
const GLM_TOKENS: u32 = 154_880;

/// `deepseek2`.
pub const DEEPSEEK2: Arch = Arch {
    name: "deepseek2",
    models: "DeepSeek 2, 2.5, 3, R1, V2 Lite, Kimi K2, GLM 4.7 Flash, GigaChat 3",
    block: &[ATTN_NORM, QUERIES, RANKED_QUERIES_OPTIONAL, LATENT, EXPANSION_EITHER, LATENT_OUT, FFN_NORM, GATED_FFN],
    expert_block: &[
        ATTN_NORM,
        QUERIES,
        RANKED_QUERIES_OPTIONAL,
        LATENT,
        EXPANSION_EITHER,
        LATENT_OUT,
        FFN_NORM,
        EXPERTS_OR_FUSED,
        CHOICE_BIAS_OPTIONAL,
        SHARED,
    ],
    attention: Attention {
        latent: true,
        scale: ScoreScale::Stretched,
        temperature: Temperature::KeyAndLength,
        ..Attention::USUAL
    },
    rope: RopeRule { partial: true, yarn_log: YarnLog::TenfoldBoth, ..RopeRule::ADJACENT },
    experts: ExpertRule {
        gating: GatingRule::KeyOrVocabulary(GLM_TOKENS),
        normalize: Normalize::Key,
        ..DEEPSEEK.experts
    },
    output: Output { factored: false, ..Arch::DENSE.output },
    scaled: ATTN_OUT_SCALE,
    ..Arch::DENSE
};

/// `mistral4`.
pub const MISTRAL4: Arch = Arch {
    name: "mistral4",
    models: "Mistral Large 3, Mistral Small 4",
    rope: RopeRule { yarn_log: YarnLog::TenfoldDivides, ..DEEPSEEK2.rope },
    ..DEEPSEEK2
};

/// `minicpm3`.
pub const MINICPM3: Arch = Arch {
    name: "minicpm3",
    models: "MiniCPM 3",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS_BY_CONTEXT],
    block: &[ATTN_NORM, RANKED_QUERIES, LATENT, EXPANSION, LATENT_OUT, FFN_NORM, GATED_FFN],
    attention: Attention { latent: true, ..Attention::USUAL },
    rope: RopeRule::PARTIAL,
    embedding_scale: EmbeddingScale::Fixed(12.0),
    residual_scale: ResidualScale::Depth(1.4),
    output: Output { input_width: Some(256.0), ..Arch::DENSE.output },
    scaled: ATTN_OUT_SCALE,
    ..Arch::DENSE
};

/// `plm`.
pub const PLM: Arch = Arch {
    name: "plm",
    models: "PLM 1.8B",
    ends: &[ENDS],
    block: &[ATTN_NORM, QUERIES, LATENT, EXPANSION, LATENT_OUT, FFN_NORM, PLAIN_FFN],
    attention: MINICPM3.attention,
    rope: RopeRule { partial: true, ..RopeRule::ADJACENT },
    feed_forward: FeedForward { activation: Activation::SquaredRelu, ..Arch::DENSE.feed_forward },
    scaled: ATTN_OUT_SCALE,
    ..Arch::DENSE
};
