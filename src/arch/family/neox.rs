//! GPT-NeoX and others with layer norms and RoPE, most of them with biases on every projection and without a gate.

use super::gpt2::GPT2;
use crate::arch::Arch;
use crate::arch::parts::{
    ATTN_NORM, ATTN_NORM_BIAS, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_NORM, FFN_NORM_BIAS,
    FFN_NORM_OPTIONAL, GATED_FFN, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED, OUTPUT_REQUIRED,
    OWN_HEAD_NORMS_OPTIONAL, PLAIN_FFN, PLAIN_FFN_BIAS_OPTIONAL, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{FeedForward, Residual, RopeRule, Sum};
use crate::ops::activation::Activation;

const SQUARED: FeedForward = FeedForward {
    activation: Activation::SquaredRelu,
    ..GPT2.feed_forward
};

/// `gptneox`.
pub const GPTNEOX: Arch = Arch {
    name: "gptneox",
    models: "GPT-NeoX, Pythia, StableLM alpha, Dolly, RedPajama",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_REQUIRED],
    rope: RopeRule::PARTIAL,
    residual: Residual::Key(Sum::FeedForwardFirst),
    ..GPT2
};

/// `codeshell`.
pub const CODESHELL: Arch = Arch {
    name: "codeshell",
    models: "CodeShell",
    rope: RopeRule::HALVES,
    residual: Residual::Sequential,
    ..GPTNEOX
};

/// `starcoder2`.
pub const STARCODER2: Arch = Arch {
    name: "starcoder2",
    models: "StarCoder 2",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED],
    ..CODESHELL
};

/// `jais2`.
pub const JAIS2: Arch = Arch {
    name: "jais2",
    models: "Jais 2",
    feed_forward: SQUARED,
    ..STARCODER2
};

/// `nemotron`.
pub const NEMOTRON: Arch = Arch {
    name: "nemotron",
    models: "Nemotron, Minitron",
    block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS,
        QKV,
        ATTN_OUT,
        ATTN_OUT_BIAS_OPTIONAL,
        FFN_NORM,
        FFN_NORM_BIAS,
        PLAIN_FFN,
        PLAIN_FFN_BIAS_OPTIONAL,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule::PARTIAL,
    feed_forward: SQUARED,
    ..CODESHELL
};

/// `orion`.
pub const ORION: Arch = Arch {
    name: "orion",
    models: "Orion",
    block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS,
        QKV,
        ATTN_OUT,
        FFN_NORM,
        FFN_NORM_BIAS,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
    ],
    feed_forward: Arch::DENSE.feed_forward,
    ..CODESHELL
};

/// `pockettts`.
pub const POCKETTTS: Arch = Arch {
    name: "pockettts",
    models: "Pocket TTS",
    ends: &[ENDS, OUTPUT_NORM_BIAS],
    block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS,
        QKV,
        ATTN_OUT,
        FFN_NORM,
        FFN_NORM_BIAS,
        PLAIN_FFN,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule::ADJACENT,
    ..CODESHELL
};

/// `stablelm`: the halves of a block run in parallel where it has one norm.
pub const STABLELM: Arch = Arch {
    name: "stablelm",
    models: "StableLM 1 to 3, StableLM 2",
    block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS,
        QKV,
        OWN_HEAD_NORMS_OPTIONAL,
        ATTN_OUT,
        FFN_NORM_OPTIONAL,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule::PARTIAL,
    feed_forward: Arch::DENSE.feed_forward,
    residual: Residual::ByNorm(Sum::AttentionFirst),
    ..GPTNEOX
};
