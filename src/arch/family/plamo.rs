//! PLaMo 1 (both sublayers of a block read one norm), PLaMo 2 (with Mamba) and PLaMo 3.

use crate::arch::Arch;
use crate::arch::factors::ATTN_OUT_SCALE;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM_BARE, ENDS, FFN_NORM, FFN_POST_NORM_BARE, FUSED_FFN, GATED_FFN, HEAD_NORMS,
    OUTPUT_OR_TIED, OUTPUT_REQUIRED, OWN_HEAD_NORMS, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::recurrent_parts::PLAMO_MAMBA;
use crate::arch::rules::{Mixing, Recurrence, Residual, RopeRule, Sum, WindowRope, WindowRule};

/// `plamo`.
pub const PLAMO: Arch = Arch {
    name: "plamo",
    models: "PLaMo 1",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, GATED_FFN, QKV_BIAS_OPTIONAL],
    residual: Residual::Parallel(Sum::HalvesFirst),
    ..Arch::DENSE
};

/// `plamo2`: Mamba in every other block.
pub const PLAMO2: Arch = Arch {
    name: "plamo2",
    models: "PLaMo 2",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[
        ATTN_NORM,
        QKV,
        OWN_HEAD_NORMS,
        ATTN_OUT,
        PLAMO_MAMBA,
        ATTN_POST_NORM_BARE,
        FFN_NORM,
        FUSED_FFN,
        FFN_POST_NORM_BARE,
    ],
    mixing: Mixing::ByHeads(Recurrence::Plamo),
    rope: RopeRule::PARTIAL,
    scaled: ATTN_OUT_SCALE,
    steered: false,
    ..Arch::DENSE
};

/// `plamo3`.
pub const PLAMO3: Arch = Arch {
    name: "plamo3",
    models: "PLaMo 3",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, ATTN_POST_NORM_BARE, FFN_NORM, FUSED_FFN, FFN_POST_NORM_BARE],
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule { rope: WindowRope::OWN, ..WindowRule::every(8) }),
    scaled: ATTN_OUT_SCALE,
    ..Arch::DENSE
};
