//! Granite: LLaMA with factors on the embeddings, the attention scores, the output of each sublayer, and the logits. A
//! file states all of them; a checkpoint calls them multipliers. MiniCPM shares the graph and assumes some.

use super::llama::{self, LLAMA};
use crate::arch::expert_parts::{EXPERTS, EXPERTS_OR_FUSED, SHARED, SHARED_FUSED};
use crate::arch::factors::{ATTENTION_SCALES, SSM_SCALES};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, FFN_BIAS_OPTIONAL, FFN_NORM, GATED_FFN, QKV, QKV_BIAS_OPTIONAL, SINKS,
};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS_OPTIONAL, GROUP_NORM, MAMBA_2};
use crate::arch::rules::{
    Attention, EmbeddingScale, ExpertRule, LogitScale, Mixing, Output, Recurrence, ResidualScale, RopeLayers, RopeRule,
    ScoreScale, SharedWidth, WindowRule,
};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, Name};

/// `granite`.
pub const GRANITE: Arch = Arch {
    name: "granite",
    models: "Granite 3 (dense)",
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, SHARED, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    rope: RopeRule { layers: RopeLayers::Finetuned, ..RopeRule::ADJACENT },
    attention: Attention { scale: ScoreScale::Key, ..Attention::USUAL },
    experts: ExpertRule { shared: SharedWidth::Key, ..ExpertRule::USUAL },
    scaled: ATTENTION_SCALES,
    embedding_scale: EmbeddingScale::Key(0.0),
    residual_scale: ResidualScale::Key,
    output: Output { scale: LogitScale::Divide, ..LLAMA.output },
    checkpoints: &[&Checkpoint {
        classes: &["GraniteForCausalLM"],
        more_keys: &[Key::VocabSize, Key::RopeDimensions, ATTENTION, EMBEDDING, RESIDUAL, LOGITS],
        ..CHECKPOINT
    }],
    ..LLAMA
};

const ATTENTION: Key = Key::Number("attention_multiplier", "attention.scale", 1.0);
const EMBEDDING: Key = Key::Number("embedding_multiplier", "embedding_scale", 1.0);
const RESIDUAL: Key = Key::Number("residual_multiplier", "residual_scale", 1.0);
const LOGITS: Key = Key::Number("logits_scaling", "logit_scale", 1.0);

/// The common part of the classes' checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint { activations: &["silu"], head_dim: HeadDim::Implied, ..llama::CHECKPOINT };

const MOE: &[Name] = &[
    ("block_sparse_moe.router.layer.weight", &["ffn_gate_inp.weight"]),
    ("block_sparse_moe.input_linear.weight", &["ffn_gate_exps.weight", "ffn_up_exps.weight"]),
    ("block_sparse_moe.output_linear.weight", &["ffn_down_exps.weight"]),
    ("shared_mlp.input_linear.weight", &["ffn_gate_shexp.weight", "ffn_up_shexp.weight"]),
    ("shared_mlp.output_linear.weight", &["ffn_down_shexp.weight"]),
];

/// `granitemoe`.
pub const GRANITEMOE: Arch = Arch {
    name: "granitemoe",
    models: "Granite 3 MoE",
    rope: RopeRule::ADJACENT,
    checkpoints: &[&Checkpoint {
        classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
        names: MOE,
        more_keys: &[Key::VocabSize, Key::RopeDimensions, ATTENTION, EMBEDDING, RESIDUAL, LOGITS, Key::SharedWidth],
        ..CHECKPOINT
    }],
    ..GRANITE
};

/// `granite_swa`: windows, and a sink in every head.
pub const GRANITE_SWA: Arch = Arch {
    name: "granite_swa",
    models: "Granite with windows",
    block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        SINKS,
        FFN_NORM,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
        FFN_BIAS_OPTIONAL,
    ],
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        SINKS,
        FFN_NORM,
        EXPERTS_OR_FUSED,
        SHARED_FUSED,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
    ],
    rope: RopeRule { layers: RopeLayers::Pattern, ..RopeRule::ADJACENT },
    window: Some(WindowRule::every(1)),
    checkpoints: &[],
    ..GRANITE
};

/// `granitehybrid`: Mamba 2 in most blocks.
pub const GRANITEHYBRID: Arch = Arch {
    name: "granitehybrid",
    models: "Granite 4 Hybrid",
    block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        MAMBA_2,
        CONVOLUTION_BIAS_OPTIONAL,
        GROUP_NORM,
        FFN_NORM,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
        FFN_BIAS_OPTIONAL,
    ],
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        MAMBA_2,
        CONVOLUTION_BIAS_OPTIONAL,
        GROUP_NORM,
        FFN_NORM,
        EXPERTS,
        SHARED,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
    ],
    mixing: Mixing::ByHeads(Recurrence::Mamba2),
    output: Output { scale: LogitScale::DivideIfAny, ..GRANITE.output },
    scaled: SSM_SCALES,
    checkpoints: &[],
    ..GRANITE
};

/// `minicpm`.
pub const MINICPM: Arch = Arch {
    name: "minicpm",
    models: "MiniCPM 1, 2 and 4",
    expert_block: LLAMA.expert_block,
    rope: RopeRule::ADJACENT,
    attention: Attention::USUAL,
    experts: ExpertRule::USUAL,
    embedding_scale: EmbeddingScale::Key(12.0),
    residual_scale: ResidualScale::KeyOrDepth(1.4),
    output: Output { scale: LogitScale::DivideOrWidth(256.0), ..LLAMA.output },
    checkpoints: &[],
    ..GRANITE
};
