//! Qwen 3 Next and Qwen 3.5: Gated DeltaNet in most blocks, attention with gates in the others.

use crate::arch::Arch;
use crate::arch::expert_parts::{EXPERTS_OR_FUSED, SHARED, SHARED_GATE};
use crate::arch::factors::{DELTA_SCALES, QWEN_NEXT_SCALES};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, FFN_NORM_AFTER_ATTN, GATED_FFN, GATED_QKV, GATED_QKV_BIAS_OPTIONAL, HEAD_NORMS,
};
use crate::arch::recurrent_parts::{DELTA, DELTA_EITHER, DELTA_STEPS, DELTA_STEPS_IN_ONE};
use crate::arch::rules::{Attention, ExpertRule, ExpertWidth, Mixing, Recurrence, RopeRule, Sections, SharedWidth};

/// `qwen3next`.
pub const QWEN3NEXT: Arch = Arch {
    name: "qwen3next",
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
    ..Arch::DENSE
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
    ..QWEN35
};
