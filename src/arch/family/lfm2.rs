//! LFM 2: gated convolutions over three positions, and attention in some blocks.

use crate::arch::Arch;
use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, END_NORM_AS_TOKENS, FFN_NORM, GATED_FFN, HEAD_NORMS, OUTPUT_OR_TIED, QKV, QKV_BIAS_OPTIONAL,
    TOKENS,
};
use crate::arch::recurrent_parts::CONVOLUTION;
use crate::arch::rules::{ExpertLayers, ExpertRule, ExpertWidth, GatingRule, Mixing, Recurrence, RopeRule, WindowRule};

/// `lfm2`.
pub const LFM2: Arch = Arch {
    name: "lfm2",
    models: "LFM 2 350M to 2.6B",
    ends: &[TOKENS, END_NORM_AS_TOKENS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, CONVOLUTION, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    mixing: Mixing::ByHeads(Recurrence::Convolution),
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule::every(0)),
    ignored: &["dense_2.weight", "dense_2.bias"],
    ..Arch::DENSE
};

/// `lfm2moe`.
pub const LFM2MOE: Arch = Arch {
    name: "lfm2moe",
    models: "LFM 2 8B-A1B, 24B-A2B",
    expert_block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        CONVOLUTION,
        FFN_NORM,
        EXPERTS,
        CHOICE_BIAS_REQUIRED,
        QKV_BIAS_OPTIONAL,
    ],
    window: None,
    experts: ExpertRule {
        gating: GatingRule::Key(None),
        width: ExpertWidth::Key,
        layers: ExpertLayers::AfterLeading,
        ..ExpertRule::USUAL
    },
    ..LFM2
};
