//! DeepSeek 1 and others with experts after some dense layers: dots.llm1, Ling.

use crate::arch::Arch;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, HEAD_NORMS, OUTPUT_OR_TIED, OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{ExpertLayers, ExpertRule, ExpertWidth, GatingRule, Normalize, RopeRule, SharedWidth};

/// `deepseek`.
pub const DEEPSEEK: Arch = Arch {
    name: "deepseek",
    models: "DeepSeek MoE 16B",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, SHARED, QKV_BIAS_OPTIONAL],
    rope: RopeRule::ADJACENT,
    experts: ExpertRule {
        normalize: Normalize::Never,
        scale: true,
        width: ExpertWidth::Key,
        shared: SharedWidth::Count,
        layers: ExpertLayers::AfterLeading,
        ..ExpertRule::USUAL
    },
    ..Arch::DENSE
};

/// `bailingmoe`.
pub const BAILINGMOE: Arch = Arch {
    name: "bailingmoe",
    models: "Ling Lite, Ling Plus",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[],
    experts: ExpertRule { normalize: Normalize::Key, layers: ExpertLayers::All, ..DEEPSEEK.experts },
    ..DEEPSEEK
};

/// `dots1`.
pub const DOTS1: Arch = Arch {
    name: "dots1",
    models: "dots.llm1",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        FFN_NORM,
        EXPERTS,
        CHOICE_BIAS_OPTIONAL,
        SHARED,
        QKV_BIAS_OPTIONAL,
    ],
    experts: ExpertRule { gating: GatingRule::Key(None), shared: SharedWidth::Count, ..ExpertRule::KEYED },
    ..Arch::DENSE
};

/// `bailingmoe2`.
pub const BAILINGMOE2: Arch = Arch {
    name: "bailingmoe2",
    models: "Ling 2, Ring 2",
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN],
    expert_block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED],
    rope: RopeRule::PARTIAL,
    experts: ExpertRule { gating: GatingRule::Key(None), shared: SharedWidth::Times, ..ExpertRule::KEYED },
    ..DOTS1
};
