//! Talkie: norms without gains, a gain per query head, and the embeddings added once more after every block.

use crate::arch::Arch;
use crate::arch::parts::{
    ATTN_OUT, BLOCK_SKIP, GATED_FFN, OUTPUT_REQUIRED, PLAIN_ATTN_NORM, PLAIN_ENDS, PLAIN_FFN_NORM, PLAIN_TOKEN_NORM,
    QKV, QKV_BIAS_OPTIONAL, QUERY_GAINS,
};
use crate::arch::rules::{Attention, LogitScale, Output, QkNorms};

/// `talkie`.
pub const TALKIE: Arch = Arch {
    name: "talkie",
    models: "Talkie",
    ends: &[PLAIN_ENDS, PLAIN_TOKEN_NORM, OUTPUT_REQUIRED],
    block: &[PLAIN_ATTN_NORM, QKV, QUERY_GAINS, ATTN_OUT, PLAIN_FFN_NORM, GATED_FFN, BLOCK_SKIP, QKV_BIAS_OPTIONAL],
    attention: Attention { qk_norms: QkNorms::AfterRope, ..Attention::USUAL },
    output: Output { scale: LogitScale::Always, factored: false, ..Arch::DENSE.output },
    scaled: &["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_down"],
    ..Arch::DENSE
};
