//! EXAONE 3, EXAONE 4 (norms after the sublayers of a block, RoPE in layers with a window alone) and its experts.

use crate::arch::Arch;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, ENDS, FFN_NORM, FFN_POST_NORM, GATED_FFN, HEAD_NORMS, OUTPUT_OR_TIED,
    OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS,
};
use crate::arch::rules::{ExpertRule, GatingRule, RopeLayers, RopeRule, SharedWidth, WindowRule, WindowSize};

/// `exaone`.
pub const EXAONE: Arch = Arch {
    name: "exaone",
    models: "EXAONE 3, EXAONE Deep",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    ..Arch::DENSE
};

/// `exaone4`: the 32B model, of 64 layers, has windows; llama.cpp knows it by that.
pub const EXAONE4: Arch = Arch {
    name: "exaone4",
    models: "EXAONE 4",
    block: &[QKV, HEAD_NORMS, ATTN_OUT, ATTN_POST_NORM, GATED_FFN, FFN_POST_NORM, QKV_BIAS_OPTIONAL],
    rope: RopeRule { layers: RopeLayers::WindowedOrAll, ..RopeRule::HALVES },
    window: Some(WindowRule { size: WindowSize::InModelsOf(64, 4096), ..WindowRule::every(4) }),
    ..EXAONE
};

/// `exaone-moe`.
pub const EXAONE_MOE: Arch = Arch {
    name: "exaone-moe",
    models: "K-EXAONE",
    ends: &[ENDS, OUTPUT_REQUIRED, ROPE_FACTORS],
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
    rope: RopeRule { layers: RopeLayers::Windowed, ..RopeRule::HALVES },
    window: Some(WindowRule::every(4)),
    experts: ExpertRule { gating: GatingRule::Key(None), shared: SharedWidth::KeyOrExpert, ..ExpertRule::KEYED },
    ..EXAONE
};
