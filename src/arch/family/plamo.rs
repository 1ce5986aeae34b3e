//! PLaMo 1 (both halves of a block see one norm) and PLaMo 3.

use crate::arch::Arch;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_SCALE, ATTN_POST_NORM_BARE, ENDS, FFN_NORM, FFN_POST_NORM_BARE,
    FUSED_FFN, GATED_FFN, HEAD_NORMS, OUTPUT_OR_TIED, OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{Residual, RopeRule, Sum, WindowRope, WindowRule};

/// `plamo`.
pub const PLAMO: Arch = Arch {
    name: "plamo",
    models: "PLaMo 1",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, GATED_FFN, QKV_BIAS_OPTIONAL],
    residual: Residual::Parallel(Sum::HalvesFirst),
    ..Arch::DENSE
};

/// `plamo3`.
pub const PLAMO3: Arch = Arch {
    name: "plamo3",
    models: "PLaMo 3",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        ATTN_POST_NORM_BARE,
        FFN_NORM,
        FUSED_FFN,
        FFN_POST_NORM_BARE,
    ],
    rope: RopeRule {
        yarn: false,
        ..RopeRule::PARTIAL
    },
    window: Some(WindowRule {
        rope: WindowRope::OWN,
        ..WindowRule::every(8)
    }),
    scaled: ATTN_OUT_SCALE,
    ..Arch::DENSE
};
