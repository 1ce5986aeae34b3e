//! Fairy2i: a LLaMA, Qwen 2 or Qwen 3 whose linear layers are widely linear.

use crate::arch::Arch;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_BIAS_OPTIONAL, FFN_NORM, GATED_FFN, HEAD_NORMS_OPTIONAL,
    OUTPUT_BIAS, OUTPUT_OR_TIED, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS,
};

/// `fairy2i`. Everything but the weights is as in the model that it was made from, with real sizes; rows of queries and
/// keys are in the order of the checkpoint.
pub const FAIRY2I: Arch = Arch {
    name: trine_formats::widely::ARCHITECTURE,
    models: "Fairy2i, and LLaMA, Qwen 2 and Qwen 3 made widely linear",
    ends: &[ENDS, OUTPUT_OR_TIED, OUTPUT_BIAS, ROPE_FACTORS],
    block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS_OPTIONAL,
        ATTN_OUT,
        FFN_NORM,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
        FFN_BIAS_OPTIONAL,
    ],
    widely_linear: true,
    unconverted: "`--fairy2i`",
    ..Arch::DENSE
};
