//! T5: an encoder, and a decoder that attends to the encoder's states.

use super::encoder::{ENCODER, OUTPUT};
use crate::arch::encoder_parts::{
    DECODER_NORM, ENCODER_NORM, T5_ATTENTION, T5_CROSS_ATTENTION, T5_DECODER_ATTENTION, T5_DECODER_FFN, T5_FFN,
};
use crate::arch::parts::{OUTPUT_OR_TIED, TOKENS};
use crate::arch::rules::{Attention, FeedForward, RopeRule, ScoreScale};
use crate::arch::{Activation, Arch};

/// `t5`: queries of the decoder's blocks attend to the positions before theirs, and then to all of the encoder's.
pub const T5: Arch = Arch {
    name: "t5",
    models: "T5, Flan-T5, mT5, UMT5",
    ends: &[TOKENS, DECODER_NORM, OUTPUT_OR_TIED],
    block: &[T5_DECODER_ATTENTION, T5_CROSS_ATTENTION, T5_DECODER_FFN],
    encoder: Some(&T5ENCODER),
    attention: Attention { both_ways: false, ..T5ENCODER.attention },
    vectors: false,
    // biases by distance that some files have for the attention to the encoder's states, and nobody adds
    ignored: &["cross_attn_rel_b.weight"],
    ..T5ENCODER
};

/// `t5encoder`: biases by distance stand for positions.
pub const T5ENCODER: Arch = Arch {
    name: "t5encoder",
    models: "encoders of T5 and Flan-T5",
    ends: &[TOKENS, ENCODER_NORM],
    block: &[T5_ATTENTION, T5_FFN],
    attention: Attention { relative: true, scale: ScoreScale::One, ..ENCODER.attention },
    rope: RopeRule::NONE,
    feed_forward: FeedForward {
        activation: Activation::Gelu,
        ungated: Some(Activation::Relu),
        ..Arch::DENSE.feed_forward
    },
    scaled: &[],
    ignored: OUTPUT,
    ..ENCODER
};
