//! Qwen 3 Next and Qwen 3.5: Gated DeltaNet in most blocks, attention with gates in the others.

use super::qwen::EXPERT_NAMES;
use crate::arch::expert_parts::{EXPERTS_OR_FUSED, SHARED, SHARED_GATE};
use crate::arch::factors::{DELTA_SCALES, QWEN_NEXT_SCALES};
use crate::arch::mtp_parts::MTP;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, FFN_NORM_AFTER_ATTN, GATED_FFN, GATED_QKV, GATED_QKV_BIAS_OPTIONAL, HEAD_NORMS,
};
use crate::arch::recurrent_parts::{DELTA, DELTA_EITHER, DELTA_STEPS, DELTA_STEPS_IN_ONE};
use crate::arch::rules::{
    Attention, DraftState, ExpertRule, ExpertWidth, Mixing, Recurrence, RopeRule, Sections, SharedWidth,
};
use crate::arch::{Arch, Checkpoint, Fixed, HeadDim, Key, Name, Rotary, Step, Tokenizer, Turn};

/// `qwen3next`.
pub const QWEN3NEXT: Arch = Arch {
    name: "qwen3next",
    draft_state: DraftState::Normed,
    models: "Qwen 3 Next 80B-A3B",
    block: &[],
    expert_block: &[
        ATTN_NORM,
        GATED_QKV,
        HEAD_NORMS,
        ATTN_OUT,
        DELTA_EITHER,
        DELTA_STEPS_IN_ONE,
        FFN_NORM_AFTER_ATTN,
        EXPERTS_OR_FUSED,
        SHARED,
        SHARED_GATE,
        GATED_QKV_BIAS_OPTIONAL,
    ],
    mtp: MTP,
    mixing: Mixing::ByPattern(Recurrence::DeltaNeighbours),
    attention: Attention { gate_in_queries: true, ..Attention::USUAL },
    rope: RopeRule::PARTIAL,
    experts: ExpertRule {
        width: ExpertWidth::KeyOrShare,
        shared: SharedWidth::KeyOrFull,
        plain_gate: true,
        ..ExpertRule::USUAL
    },
    scaled: QWEN_NEXT_SCALES,
    // the projection of older files, where a file has both
    ignored: &["ssm_in.weight"],
    checkpoints: &[&Checkpoint {
        classes: &["Qwen3NextForCausalLM"],
        names: EXPERT_NAMES,
        more_names: &[
            ("linear_attn.in_proj_qkvz.weight", &["attn_qkv.weight", "attn_gate.weight"]),
            ("linear_attn.in_proj_ba.weight", &["ssm_ba.weight"]),
            CONVOLUTION,
            STEPS,
            RATES,
            NORM,
            OUT,
        ],
        steps: &[
            ("linear_attn.in_proj_qkvz.weight", &[Step::ByKeyHead]),
            ("linear_attn.A_log", &[Step::Decay]),
            ("linear_attn.norm.weight", &[Step::AsItIs]),
        ],
        more_keys: &[Key::ExpertWidth, Key::SharedWidth, Key::Delta],
        fixed: &[("decoder_sparse_step", Fixed::Number(1.0)), ("mlp_only_layers", Fixed::Unset)],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};

const CONVOLUTION: Name = ("linear_attn.conv1d.weight", &["ssm_conv1d.weight"]);
const STEPS: Name = ("linear_attn.dt_bias", &["ssm_dt.bias"]);
const RATES: Name = ("linear_attn.A_log", &["ssm_a"]);
const NORM: Name = ("linear_attn.norm.weight", &["ssm_norm.weight"]);
const OUT: Name = ("linear_attn.out_proj.weight", &["ssm_out.weight"]);

/// The common part of all checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint {
    norms_plus_one: true,
    head_dim: HeadDim::Implied,
    context: 32768,
    rotary: Rotary::OfHead(0.25),
    tokenizer: Tokenizer::Json,
    ..Checkpoint::USUAL
};

/// Qwen 3.5's checkpoints: the heads of a key's values are put in turns, as ggml repeats keys.
pub const TURNED: Checkpoint = Checkpoint {
    more_names: &[
        ("linear_attn.in_proj_qkv.weight", &["attn_qkv.weight"]),
        ("linear_attn.in_proj_z.weight", &["attn_gate.weight"]),
        ("linear_attn.in_proj_a.weight", &["ssm_alpha.weight"]),
        ("linear_attn.in_proj_b.weight", &["ssm_beta.weight"]),
        CONVOLUTION,
        STEPS,
        RATES,
        NORM,
        OUT,
    ],
    steps: &[
        ("linear_attn.in_proj_qkv.weight", &[Step::InTurns(Turn::Channels)]),
        ("linear_attn.conv1d.weight", &[Step::InTurns(Turn::Channels)]),
        ("linear_attn.in_proj_z.weight", &[Step::InTurns(Turn::Rows)]),
        ("linear_attn.in_proj_a.weight", &[Step::InTurns(Turn::Heads)]),
        ("linear_attn.in_proj_b.weight", &[Step::InTurns(Turn::Heads)]),
        ("linear_attn.dt_bias", &[Step::InTurns(Turn::Heads)]),
        ("linear_attn.A_log", &[Step::InTurns(Turn::Heads), Step::Decay]),
        ("linear_attn.out_proj.weight", &[Step::InTurns(Turn::Columns)]),
        ("linear_attn.norm.weight", &[Step::AsItIs]),
    ],
    more_keys: &[Key::ExpertWidth, Key::SharedWidth, Key::Delta, Key::SectionsOr([11, 11, 10, 0])],
    ..CHECKPOINT
};

/// `qwen35`.
pub const QWEN35: Arch = Arch {
    name: "qwen35",
    models: "Qwen 3.5 0.8B to 27B (text)",
    block: &[
        ATTN_NORM,
        GATED_QKV,
        HEAD_NORMS,
        ATTN_OUT,
        DELTA,
        DELTA_STEPS,
        FFN_NORM_AFTER_ATTN,
        GATED_FFN,
        GATED_QKV_BIAS_OPTIONAL,
    ],
    expert_block: &[],
    mixing: Mixing::ByPattern(Recurrence::DeltaTurns),
    rope: RopeRule { sections: Sections::Alternating, ..RopeRule::PARTIAL },
    scaled: DELTA_SCALES,
    ignored: &[],
    checkpoints: &[&Checkpoint {
        classes: &["Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM", "MiniCPMV4_6ForConditionalGeneration"],
        left_out: &["model.merger."],
        ..TURNED
    }],
    ..QWEN3NEXT
};

/// `qwen35moe`.
pub const QWEN35MOE: Arch = Arch {
    name: "qwen35moe",
    models: "Qwen 3.5 35B-A3B, 122B-A10B (text)",
    block: &[],
    expert_block: &[
        ATTN_NORM,
        GATED_QKV,
        HEAD_NORMS,
        ATTN_OUT,
        DELTA,
        DELTA_STEPS,
        FFN_NORM_AFTER_ATTN,
        EXPERTS_OR_FUSED,
        SHARED,
        SHARED_GATE,
        GATED_QKV_BIAS_OPTIONAL,
    ],
    checkpoints: &[&Checkpoint {
        classes: &["Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"],
        names: EXPERT_NAMES,
        ..TURNED
    }],
    ..QWEN35
};
