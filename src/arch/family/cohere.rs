//! Command R and Cohere 2: both sublayers of a block read one layer norm without bias; from Cohere 2 on only layers
//! with a window have RoPE.

use super::qwen::DOWN_GATE_UP;
use crate::arch::expert_parts::{EXPERTS_OR_FUSED, SHARED};
use crate::arch::factors::{ALL_SCALES, DENSE_SCALES};
use crate::arch::mtp_parts::MTP;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, GATED_FFN, OUTPUT_OR_TIED, OWN_HEAD_NORMS_OPTIONAL, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{
    ExpertRule, ExpertWidth, LogitScale, NormKind, Output, Residual, RopeLayers, RopeRule, SharedWidth, Sum, WindowRule,
};
use crate::arch::{Arch, Checkpoint, Fixed, HeadDim, Key, Pairing, Rotary, Tokenizer};

const ROPE: RopeRule = RopeRule { pairing: Pairing::Adjacent, ..RopeRule::PARTIAL };

/// `command-r`.
pub const COMMAND_R: Arch = Arch {
    name: "command-r",
    models: "Command R, Command R+, Aya 23",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, OWN_HEAD_NORMS_OPTIONAL, ATTN_OUT, GATED_FFN, QKV_BIAS_OPTIONAL],
    norm: NormKind::Layer,
    rope: ROPE,
    residual: Residual::Parallel(Sum::FeedForwardFirst),
    output: Output { scale: LogitScale::MultiplyOr(0.0), ..Arch::DENSE.output },
    checkpoints: &[&Checkpoint {
        classes: &["CohereForCausalLM"],
        more_keys: &[LOGIT_SCALE, NO_SCALING],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};

const LOGIT_SCALE: Key = Key::Number("logit_scale", "logit_scale", 0.0625);
const NO_SCALING: Key = Key::Text("rope.scaling.type", "none");

/// The common part of both checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint {
    tied: true,
    neighbours: true,
    // contexts are longer than config.json's other number says
    context_names: &["model_max_length", "max_position_embeddings"],
    context: 8192,
    ..Checkpoint::LAYER_NORMS
};

/// `cohere2`.
pub const COHERE2: Arch = Arch {
    name: "cohere2",
    models: "Command R7B, Command A, Aya Expanse",
    block: &[ATTN_NORM, QKV, ATTN_OUT, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule { layers: RopeLayers::Windowed, ..ROPE },
    window: Some(WindowRule::needed(4)),
    output: Output { scale: LogitScale::Multiply, ..Arch::DENSE.output },
    scaled: DENSE_SCALES,
    checkpoints: &[&Checkpoint {
        classes: &["Cohere2ForCausalLM"],
        head_dim: HeadDim::Quotient,
        context_names: &["max_position_embeddings"],
        rotary: Rotary::OfHead(1.0),
        more_keys: &[LOGIT_SCALE, Key::Window(4096), Key::VocabSize, Key::RopeDimensions, NO_SCALING],
        ..CHECKPOINT
    }],
    ..COMMAND_R
};

/// `cohere2moe`.
pub const COHERE2MOE: Arch = Arch {
    name: "cohere2moe",
    models: "Cohere 2 with experts",
    ends: &[ENDS, OUTPUT_OR_TIED],
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, EXPERTS_OR_FUSED, SHARED, QKV_BIAS_OPTIONAL],
    mtp: MTP,
    norm: NormKind::ByKey,
    rope: RopeRule { layers: RopeLayers::WindowedOrLeading, ..RopeRule::ADJACENT },
    window: Some(WindowRule { global_first: true, ..WindowRule::needed(4) }),
    experts: ExpertRule {
        width: ExpertWidth::KeyOrFull,
        shared: SharedWidth::KeyOrCount,
        beside: Some(0.5),
        ..ExpertRule::KEYED
    },
    output: Output { factored: false, ..COHERE2.output },
    scaled: ALL_SCALES,
    checkpoints: &[&Checkpoint {
        classes: &["Cohere2MoeForCausalLM"],
        names: DOWN_GATE_UP,
        tied: true,
        neighbours: true,
        width_names: &["prefix_dense_intermediate_size", "dense_intermediate_size", "intermediate_size"],
        layer_eps: Some(1e-5),
        rms_eps: None,
        head_dim: HeadDim::Implied,
        fixed: &[("shared_expert_combination_strategy", Fixed::Text("average"))],
        more_keys: &[
            LOGIT_SCALE,
            Key::Window(4096),
            Key::WindowLayers,
            Key::VocabSize,
            Key::Whole(&["intermediate_size"], "expert_feed_forward_length"),
            Key::LeadingDense,
            Key::Flag("norm_topk_prob", "expert_weights_norm", false),
            Key::Whole(&["num_shared_experts"], "expert_shared_count"),
            Key::Product(&["intermediate_size"], &["num_shared_experts"], "expert_shared_feed_forward_length"),
            Key::RopeDimensions,
            NO_SCALING,
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..COHERE2
};
