//! BitNet b1.58: LLaMA with an RMS norm on the heads before the output projection and on the gated
//! activations before the down projection, and the embeddings as output matrix.
//!
//! llama.cpp's `bitnet` gates with SiLU; the published 2B-4T model (`bitnet-25`, later `bitnet-b1.58`) was
//! trained with squared ReLU.

use crate::arch::factors::DENSE_SCALES;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, ATTN_SUB_NORM, ENDS, FFN_NORM, FFN_SUB_NORM, GATED_FFN, QKV};
use crate::arch::rules::{FeedForward, RopeRule};
use crate::arch::{Activation, Arch, Checkpoint, Key, RopeScaling};

/// `bitnet`.
pub const BITNET: Arch = Arch {
    name: "bitnet",
    models: "BitNet b1.58 of 1bitLLM",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, ATTN_SUB_NORM, FFN_SUB_NORM],
    rope: RopeRule::PARTIAL,
    scaled: DENSE_SCALES,
    checkpoints: &[&Checkpoint { activations: &["silu"], more_keys: &[Key::UnitScaling], ..CHECKPOINT }],
    ..Arch::DENSE
};

/// `bitnet-25`, the name of the first upload of the 2B-4T model.
pub const BITNET_25: Arch = Arch {
    name: "bitnet-25",
    models: "BitNet b1.58 2B-4T, first upload",
    feed_forward: SQUARED,
    checkpoints: &[],
    unconverted: "as bitnet-b1.58",
    ..BITNET
};

/// `bitnet-b1.58`, its name today.
pub const BITNET_B158: Arch = Arch {
    name: "bitnet-b1.58",
    models: "BitNet b1.58 2B-4T",
    feed_forward: SQUARED,
    checkpoints: &[&Checkpoint {
        activations: &["relu2"],
        more_keys: &[Key::VocabSize, Key::RopeDimensions],
        ..CHECKPOINT
    }],
    ..BITNET
};

const SQUARED: FeedForward = FeedForward { activation: Activation::SquaredRelu, ..Arch::DENSE.feed_forward };

const CHECKPOINT: Checkpoint = Checkpoint {
    classes: &["BitNetForCausalLM", "BitnetForCausalLM"],
    latent: true,
    tied: true,
    // names of the first checkpoints (1bitLLM)
    names: &[
        ("self_attn.inner_attn_ln.weight", &["attn_sub_norm.weight"]),
        ("mlp.ffn_layernorm.weight", &["ffn_sub_norm.weight"]),
    ],
    rms_eps: Some(1e-5),
    rope_scaling: RopeScaling::None,
    ..Checkpoint::USUAL
};
