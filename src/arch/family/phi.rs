//! Phi 2 (both sublayers read one layer norm), Phi 3 (gate and up projection in one matrix, RoPE factors by context)
//! and its mixture of experts.

use super::llama::MIXTRAL;
use crate::arch::expert_parts::EXPERTS;
use crate::arch::parts::{
    ATTN_NORM, ATTN_NORM_BIAS, ATTN_OUT, ATTN_OUT_BIAS, ENDS, FFN_NORM, FFN_NORM_BIAS, FUSED_FFN, OUTPUT_BIAS_REQUIRED,
    OUTPUT_NORM_BIAS, OUTPUT_OR_TIED, OUTPUT_REQUIRED, PLAIN_FFN, PLAIN_FFN_BIAS, QKV, QKV_BIAS_OPTIONAL,
    ROPE_FACTORS_BY_CONTEXT,
};
use crate::arch::rules::{Attention, FeedForward, NormKind, Residual, RopeRule, ScoreScale, Sum};
use crate::arch::{
    Activation, Arch, Checkpoint, Fixed, Fused, HeadDim, Key, KvHeads, RopeScaling, Rotary, Tokenizer, Width,
};

const ATTENTION: Attention = Attention { scale: ScoreScale::OnQueries(None), ..Attention::USUAL };

/// `phi2`.
pub const PHI2: Arch = Arch {
    name: "phi2",
    models: "Phi 1.5, Phi 2",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_REQUIRED, OUTPUT_BIAS_REQUIRED],
    block: &[ATTN_NORM, ATTN_NORM_BIAS, QKV, ATTN_OUT, ATTN_OUT_BIAS, PLAIN_FFN, PLAIN_FFN_BIAS, QKV_BIAS_OPTIONAL],
    norm: NormKind::Layer,
    attention: ATTENTION,
    rope: RopeRule::PARTIAL,
    feed_forward: FeedForward { activation: Activation::Gelu, ..Arch::DENSE.feed_forward },
    residual: Residual::Parallel(Sum::HalvesFirst),
    checkpoints: &[&Checkpoint {
        classes: &["PhiForCausalLM"],
        activations: &["gelu_new", "gelu_pytorch_tanh", "gelu"],
        names: &[
            ("final_layernorm.weight", &["output_norm.weight"]),
            ("final_layernorm.bias", &["output_norm.bias"]),
            ("self_attn.dense.weight", &["attn_output.weight"]),
            ("self_attn.dense.bias", &["attn_output.bias"]),
            ("mlp.fc1.weight", &["ffn_up.weight"]),
            ("mlp.fc1.bias", &["ffn_up.bias"]),
            ("mlp.fc2.weight", &["ffn_down.weight"]),
            ("mlp.fc2.bias", &["ffn_down.bias"]),
        ],
        kv_heads: KvHeads::Queries,
        width: Width::Fourfold,
        rotary: Rotary::OfWidth(0.5),
        rope_scaling: RopeScaling::None,
        // the file has no base of RoPE
        fixed: &[("rope_theta", Fixed::Number(10000.0))],
        keys: &[
            Key::Context,
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            Key::KvHeads,
            Key::LayerEpsilon,
            Key::RopeDimensions,
            Key::FileType,
            Key::TokenFlag("add_bos_token", false),
        ],
        ..Checkpoint::LAYER_NORMS
    }],
    ..Arch::DENSE
};

/// `phi3`. A window in the file means nothing.
pub const PHI3: Arch = Arch {
    name: "phi3",
    models: "Phi 3, Phi 3.5, Phi 4",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS_BY_CONTEXT],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, FUSED_FFN, QKV_BIAS_OPTIONAL],
    attention: ATTENTION,
    rope: RopeRule::PARTIAL,
    checkpoints: &[&PHI3_CHECKPOINT],
    ..Arch::DENSE
};

const PHI3_CHECKPOINT: Checkpoint = Checkpoint {
    classes: &["Phi3ForCausalLM"],
    names: &[
        ("self_attn.qkv_proj.weight", &["attn_qkv.weight"]),
        ("self_attn.qkv_proj.bias", &["attn_qkv.bias"]),
        ("mlp.gate_up_proj.weight", &["ffn_up.weight"]),
    ],
    fused: Some(Fused::InOrder),
    head_dim: HeadDim::Implied,
    context: 4096,
    rms_eps: Some(1e-5),
    rotary: Rotary::OfWidth(1.0),
    rope_scaling: RopeScaling::ByContext,
    keys: &[
        Key::Context,
        Key::OriginalContext,
        Key::Embedding,
        Key::FeedForward,
        Key::Blocks,
        Key::Heads,
        Key::KvHeads,
        Key::RmsEpsilon,
        Key::RopeDimensions,
        Key::RopeBase,
        Key::FileType,
        // 0 tells Phi 4 from the others
        Key::Window(0),
    ],
    tokenizer: Tokenizer::Phi,
    ..Checkpoint::USUAL
};

/// `phimoe`: biases on every norm.
pub const PHIMOE: Arch = Arch {
    name: "phimoe",
    models: "Phi 3.5 MoE",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_REQUIRED, OUTPUT_BIAS_REQUIRED, ROPE_FACTORS_BY_CONTEXT],
    block: &[],
    expert_block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS,
        QKV,
        ATTN_OUT,
        ATTN_OUT_BIAS,
        FFN_NORM,
        FFN_NORM_BIAS,
        EXPERTS,
        QKV_BIAS_OPTIONAL,
    ],
    checkpoints: &[&Checkpoint {
        classes: &["PhimoeForCausalLM", "PhiMoEForCausalLM"],
        names: MIXTRAL,
        fused: None,
        kv_heads: KvHeads::StatedOr(8),
        context: 131_072,
        rope_theta: 1_000_000.0,
        more_keys: &[Key::ExpertsUsed, Key::Experts],
        ..PHI3_CHECKPOINT
    }],
    ..PHI3
};
