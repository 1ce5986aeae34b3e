//! OpenELM, as far as its layers are alike.

use crate::arch::Arch;
use crate::arch::factors::ATTN_OUT_SCALE;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, HEAD_NORMS, QKV};
use crate::arch::rules::RopeRule;

/// `openelm`.
pub const OPENELM: Arch = Arch {
    name: "openelm",
    models: "OpenELM",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN],
    rope: RopeRule::PARTIAL,
    scaled: ATTN_OUT_SCALE,
    ..Arch::DENSE
};
