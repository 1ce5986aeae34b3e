//! Gemma 3 (text): norms before and after both halves of a block, RMS norm on every query and key head,
//! sliding-window layers with their own RoPE base, GeGLU.
//!
//! Norm weights are used as stored: the converter has already added the 1 of Gemma's formula.

use super::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, FFN_POST_NORM, GATED_FFN, HEAD_NORMS, PRE_FFN_NORM, QKV,
    QKV_BIAS_OPTIONAL,
};
use super::{
    Arch, Checkpoint, EmbeddingScale, HeadDim, RopeRule, ScoreScale, SpacePrefix, WindowRope,
    WindowRule,
};
use crate::ops::activation::Activation;

/// `gemma3`.
pub const GEMMA3: Arch = Arch {
    name: "gemma3",
    models: "Gemma 3 (text)",
    block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        ATTN_POST_NORM,
        PRE_FFN_NORM,
        GATED_FFN,
        FFN_POST_NORM,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule {
        partial: true,
        yarn: false,
        ..Arch::DENSE.rope
    },
    window: Some(WindowRule {
        period: 6,
        rope: WindowRope::OwnBase,
    }),
    score_scale: ScoreScale::OnQueries,
    activation: Activation::Gelu,
    embedding_scale: EmbeddingScale::RootOfWidth,
    logit_softcap: true,
    // layers of embedding models
    ignored: &["dense_2.weight", "dense_3.weight"],
    checkpoint: Some(&Checkpoint {
        classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
        activations: &["gelu_pytorch_tanh"],
        norms_plus_one: true,
        padded_embedding: true,
        tied: true,
        vocab: Some(262_208),
        heads: Some(8),
        kv_heads: Some(4),
        head_dim: HeadDim::Fixed(256),
        context: 131_072,
        rope_theta: 1_000_000.0,
        window: Some(4096),
        space_prefix: SpacePrefix::Never,
        ..Checkpoint::USUAL
    }),
    ..Arch::DENSE
};
