//! Nemotron H: blocks of Mamba 2, of attention and of a feed-forward network, one of the three each.

use crate::arch::factors::NEMOTRON_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, PLAIN_FFN, PLAIN_FFN_BIAS_OPTIONAL, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS_OPTIONAL, GROUP_NORM, MAMBA_2};
use crate::arch::rules::{FeedForward, GateClamp, Mixing, NormKind, Recurrence, RopeRule};
use crate::arch::{Activation, Arch};

/// `nemotron_h`.
pub const NEMOTRON_H: Arch = Arch {
    name: "nemotron_h",
    models: "Nemotron H, Nemotron Nano 2",
    block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        MAMBA_2,
        CONVOLUTION_BIAS_OPTIONAL,
        GROUP_NORM,
        PLAIN_FFN,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
        PLAIN_FFN_BIAS_OPTIONAL,
    ],
    norm: NormKind::RmsOfEither,
    mixing: Mixing::ByHeadsAlone(Recurrence::Mamba2),
    rope: RopeRule::NONE,
    feed_forward: FeedForward { activation: Activation::SquaredRelu, clamp: GateClamp::None },
    scaled: NEMOTRON_SCALES,
    steered: false,
    ..Arch::DENSE
};

/// `nemotron_h_moe`, as far as its models have no experts.
pub const NEMOTRON_H_MOE: Arch = Arch { name: "nemotron_h_moe", models: "Nemotron H without experts", ..NEMOTRON_H };
