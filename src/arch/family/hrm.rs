//! HRM-Text: two stacks of blocks that run in cycles, and norms without gains.

use crate::arch::Arch;
use crate::arch::parts::{
    ATTN_GATE, ATTN_OUT, GATED_FFN, LOW_STATE, OUTPUT_OR_TIED, PLAIN_ATTN_NORM, PLAIN_ENDS, PLAIN_FFN_NORM, QKV,
    QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{EmbeddingScale, RopeRule};

/// `hrm_text`.
pub const HRM_TEXT: Arch = Arch {
    name: "hrm_text",
    models: "HRM-Text, Mimir 1B",
    ends: &[PLAIN_ENDS, OUTPUT_OR_TIED, LOW_STATE],
    block: &[PLAIN_ATTN_NORM, QKV, ATTN_GATE, ATTN_OUT, PLAIN_FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    cycles: true,
    rope: RopeRule::PARTIAL,
    embedding_scale: EmbeddingScale::Key(0.0),
    ..Arch::DENSE
};
