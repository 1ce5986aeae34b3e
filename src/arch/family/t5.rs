//! T5: an encoder, and a decoder that attends to the encoder's states.

use super::encoder::{ENCODER, OUTPUT};
use crate::arch::encoder_parts::{
    DECODER_NORM, ENCODER_NORM, T5_ATTENTION, T5_CROSS_ATTENTION, T5_CROSS_BIASES, T5_DECODER_ATTENTION,
    T5_DECODER_FFN, T5_FFN,
};
use crate::arch::parts::{OUTPUT_OR_TIED, TOKENS};
use crate::arch::rules::{Attention, FeedForward, RopeRule, ScoreScale};
use crate::arch::{Activation, Arch, Checkpoint, Fixed, HeadDim, Key, KvHeads, RopeScaling, Tokenizer};

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
    checkpoints: &[&Checkpoint {
        classes: &[
            "T5ForConditionalGeneration",
            "T5WithLMHeadModel",
            "MT5ForConditionalGeneration",
            "UMT5ForConditionalGeneration",
            "UMT5Model",
        ],
        beside: T5_CROSS_BIASES,
        keys: &[
            CONTEXT,
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Whole(&["num_decoder_layers"], "decoder_block_count"),
            Key::Heads,
            KEYS,
            VALUES,
            EPSILON,
            BUCKETS,
            RMS_EPSILON,
            Key::Whole(&["decoder_start_token_id"], "decoder_start_token_id"),
            Key::FileType,
        ],
        ..CHECKPOINT
    }],
    ..T5ENCODER
};

const CONTEXT: Key = Key::WholeOr(&["n_positions"], "context_length", 512);
const KEYS: Key = Key::Whole(&["d_kv"], "attention.key_length");
const VALUES: Key = Key::Whole(&["d_kv"], "attention.value_length");
const EPSILON: Key = Key::FractionOr(&["layer_norm_epsilon"], "attention.layer_norm_epsilon", 1e-6);
const RMS_EPSILON: Key = Key::FractionOr(&["layer_norm_epsilon"], "attention.layer_norm_rms_epsilon", 1e-6);
const BUCKETS: Key = Key::Whole(&["relative_attention_num_buckets"], "attention.relative_buckets_count");
/// The embeddings of both halves are one.
const EMBEDDINGS: &[&str] = &["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"];

/// The common part of the classes' checkpoints. Networks with a gate compute GELU, others ReLU.
const CHECKPOINT: Checkpoint = Checkpoint {
    activations: &["relu", "gated-gelu"],
    root: "",
    blocks: "block",
    halves: true,
    copies: EMBEDDINGS,
    names: &[
        (EMBEDDINGS[0], &["token_embd.weight"]),
        (EMBEDDINGS[1], &["token_embd.weight"]),
        (EMBEDDINGS[2], &["token_embd.weight"]),
        ("encoder.layer.1.DenseReluDense.wi_1.weight", &["enc.ffn_up.weight"]),
        ("decoder.layer.2.DenseReluDense.wi_1.weight", &["dec.ffn_up.weight"]),
    ],
    tied: true,
    kv_heads: KvHeads::Queries,
    head_dim: HeadDim::Stated("d_kv"),
    width_names: &["d_ff"],
    rope_theta: 0.0,
    rope_scaling: RopeScaling::None,
    fixed: &[("relative_attention_max_distance", Fixed::Number(128.0))],
    tokenizer: Tokenizer::T5,
    ..Checkpoint::USUAL
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
    checkpoints: &[&Checkpoint {
        classes: &["T5EncoderModel"],
        keys: &[
            CONTEXT,
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            KEYS,
            VALUES,
            EPSILON,
            BUCKETS,
            RMS_EPSILON,
            Key::FileType,
        ],
        ..CHECKPOINT
    }],
    ..ENCODER
};
