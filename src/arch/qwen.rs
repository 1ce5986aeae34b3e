//! Qwen 2 (biases on q, k and v) and Qwen 3 (a norm on every query and key head instead), and Qwen 3 with experts.

use super::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, EXPERTS, FFN_NORM, GATED_FFN, HEAD_NORMS,
    OUTPUT_BIAS, OUTPUT_OR_TIED, QKV, QKV_BIAS_OPTIONAL,
};
use super::{Arch, Checkpoint, HeadDim};

/// `qwen2`.
pub const QWEN2: Arch = Arch {
    name: "qwen2",
    models: "Qwen 2, Qwen 2.5",
    ends: &[ENDS, OUTPUT_OR_TIED, OUTPUT_BIAS],
    block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        FFN_NORM,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
    ],
    checkpoint: Some(&Checkpoint {
        classes: &["Qwen2ForCausalLM"],
        context: 32768,
        head_dim: HeadDim::Implied,
        ..Checkpoint::USUAL
    }),
    ..Arch::DENSE
};

/// `qwen3`.
pub const QWEN3: Arch = Arch {
    name: "qwen3",
    models: "Qwen 3, Bonsai",
    block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        FFN_NORM,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
    ],
    ffn_scales: true,
    // the head of rerankers
    ignored: &["cls.output.weight"],
    checkpoint: Some(&Checkpoint {
        classes: &["Qwen3ForCausalLM"],
        context: 32768,
        head_dim: HeadDim::Fixed(128),
        ..Checkpoint::USUAL
    }),
    ..Arch::DENSE
};

/// `qwen3moe`.
pub const QWEN3MOE: Arch = Arch {
    name: "qwen3moe",
    models: "Qwen 3 30B-A3B, 235B-A22B",
    expert_block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        FFN_NORM,
        EXPERTS,
        QKV_BIAS_OPTIONAL,
    ],
    ffn_scales: true,
    expert_width_key: true,
    ..Arch::DENSE
};
