//! Falcon 1: the halves of a block run in parallel, in the large models with a norm each.

use super::gpt2::GPT2;
use crate::arch::Arch;
use crate::arch::parts::{
    ATTN_NORM, ATTN_NORM_2_OPTIONAL, ATTN_NORM_BIAS, ATTN_OUT, ENDS, OUTPUT_NORM_BIAS,
    OUTPUT_OR_TIED, PLAIN_FFN, QKV,
};
use crate::arch::rules::{Residual, RopeRule, Sum};

/// `falcon`.
pub const FALCON: Arch = Arch {
    name: "falcon",
    models: "Falcon 7B, 40B, 180B",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED],
    block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS,
        ATTN_NORM_2_OPTIONAL,
        QKV,
        ATTN_OUT,
        PLAIN_FFN,
    ],
    rope: RopeRule::HALVES,
    residual: Residual::Parallel(Sum::HalvesFirst),
    ..GPT2
};
