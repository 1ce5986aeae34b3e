//! OpenELM: later layers have more heads and are wider.

use crate::arch::Arch;
use crate::arch::factors::ATTN_OUT_SCALE;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, HEAD_NORMS, QKV};
use crate::arch::rules::{Attention, FeedForward, RopeRule};

/// `openelm`.
pub const OPENELM: Arch = Arch {
    name: "openelm",
    models: "OpenELM",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN],
    attention: Attention { heads_by_layer: true, ..Attention::USUAL },
    rope: RopeRule::PARTIAL,
    feed_forward: FeedForward { by_layer: true, ..Arch::DENSE.feed_forward },
    scaled: ATTN_OUT_SCALE,
    ..Arch::DENSE
};
