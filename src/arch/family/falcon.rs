//! Falcon 1: the halves of a block run in parallel, in the large models with a norm each. Falcon H1: attention and Mamba 2
//! beside each other.

use super::gpt2::GPT2;
use crate::arch::Arch;
use crate::arch::factors::SSM_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_NORM_2_OPTIONAL, ATTN_NORM_BIAS, ATTN_OUT, ENDS, FFN_BIAS_OPTIONAL,
    FFN_NORM_BARE, GATED_FFN, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED, PLAIN_FFN, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS_OPTIONAL, GROUP_NORM_OPTIONAL, MAMBA_2};
use crate::arch::rules::{Mixing, Recurrence, Residual, RopeRule, Sum};

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

/// `falcon-h1`. Its graph ignores the output projection's bias and the divisors of RoPE's frequencies.
pub const FALCON_H1: Arch = Arch {
    name: "falcon-h1",
    models: "Falcon H1",
    block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        MAMBA_2,
        CONVOLUTION_BIAS_OPTIONAL,
        GROUP_NORM_OPTIONAL,
        FFN_NORM_BARE,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
        FFN_BIAS_OPTIONAL,
    ],
    mixing: Mixing::Both(Recurrence::Mamba2),
    rope: RopeRule::PARTIAL,
    scaled: SSM_SCALES,
    ignored: &["attn_output.bias", "rope_freqs.weight"],
    ..Arch::DENSE
};
