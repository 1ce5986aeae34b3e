//! ERNIE 4.5, dense, with experts at regular intervals of layers, and the text model of PaddleOCR.

use super::qwen::GATE_UP_DOWN;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_NORM, GATED_FFN, OUTPUT_OR_TIED, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{ExpertLayers, ExpertRule, ExpertWidth, RopeRule, Sections, SharedWidth};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, SpacePrefix, Step};

/// `ernie4_5`; the bias of the output projection is not added, and a number of experts means nothing.
pub const ERNIE4_5: Arch = Arch {
    name: "ernie4_5",
    models: "ERNIE 4.5 0.3B",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule::ADJACENT,
    experts: ExpertRule { layers: ExpertLayers::None, ..ExpertRule::USUAL },
    ignored: &["attn_output.bias"],
    checkpoints: &[&Checkpoint {
        classes: &["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
        names: &[
            ("self_attn.qkv_proj.weight", &["attn_q.weight", "attn_k.weight", "attn_v.weight"]),
            ("mlp.up_gate_proj.weight", &["ffn_gate.weight", "ffn_up.weight"]),
        ],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};

/// The common part of the checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint {
    neighbours: true,
    head_dim: HeadDim::Implied,
    space_prefix: SpacePrefix::ConfigLast,
    ..Checkpoint::USUAL
};

/// `ernie4_5-moe`.
pub const ERNIE4_5_MOE: Arch = Arch {
    name: "ernie4_5-moe",
    models: "ERNIE 4.5 21B-A3B, 300B-A47B",
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED, QKV_BIAS_OPTIONAL],
    experts: ExpertRule {
        width: ExpertWidth::Key,
        shared: SharedWidth::Key,
        layers: ExpertLayers::EveryAfterLeading,
        ..ExpertRule::USUAL
    },
    checkpoints: &[&Checkpoint {
        classes: &["Ernie4_5_MoeForCausalLM"],
        names: GATE_UP_DOWN,
        more_names: &[("mlp.moe_statics.e_score_correction_bias", &["exp_probs_b.bias"])],
        steps: &[("mlp.moe_statics.e_score_correction_bias", &[Step::OneRow])],
        left_out: &["model.mtp_block.", "model.mtp_emb_norm.", "model.mtp_hidden_norm.", "model.mtp_linear_proj."],
        more_keys: &[
            Key::Whole(&["moe_num_experts"], "expert_count"),
            Key::Whole(&["moe_k"], "expert_used_count"),
            Key::Whole(&["moe_layer_interval"], "interleave_moe_layer_step"),
            Key::Whole(&["moe_layer_start_index"], "leading_dense_block_count"),
            Key::ExpertWidth,
            Key::Whole(&["moe_num_shared_experts"], "expert_shared_count"),
            Key::Quotient(&["intermediate_size"], &["num_key_value_heads"], "expert_shared_feed_forward_length"),
        ],
        ..CHECKPOINT
    }],
    ..ERNIE4_5
};

/// `paddleocr`.
pub const PADDLEOCR: Arch = Arch {
    name: "paddleocr",
    models: "PaddleOCR-VL (text)",
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    rope: RopeRule { sections: Sections::InOrder, ..RopeRule::HALVES },
    ignored: &[],
    checkpoints: &[&Checkpoint { classes: &["PaddleOCRVLForConditionalGeneration"], ..CHECKPOINT }],
    ..ERNIE4_5
};
