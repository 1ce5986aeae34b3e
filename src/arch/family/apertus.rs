//! Apertus: a network without a gate, whose activation has numbers of its own in every layer.

use super::llama;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_NORM, HEAD_NORMS, OUTPUT_REQUIRED, PLAIN_FFN, QKV,
    QKV_BIAS_OPTIONAL, ROPE_FACTORS,
};
use crate::arch::rules::FeedForward;
use crate::arch::{Activation, Arch, Checkpoint, HeadDim, TensorKey};

/// `apertus`; the biases of the norms of heads are not added.
pub const APERTUS: Arch = Arch {
    name: "apertus",
    models: "Apertus 8B, 70B",
    ends: &[ENDS, OUTPUT_REQUIRED, ROPE_FACTORS],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, PLAIN_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    feed_forward: FeedForward { activation: Activation::Xielu([0.0; 4]), ..Arch::DENSE.feed_forward },
    ignored: &["attn_q_norm.bias", "attn_k_norm.bias"],
    checkpoints: &[&Checkpoint {
        classes: &["ApertusForCausalLM"],
        activations: &["xielu"],
        head_dim: HeadDim::Implied,
        names: &[
            ("attention_layernorm.weight", &["attn_norm.weight"]),
            ("feedforward_layernorm.weight", &["ffn_norm.weight"]),
        ],
        tensor_keys: &[
            TensorKey::OfBlocks("mlp.act_fn.alpha_n", "xielu.alpha_n"),
            TensorKey::OfBlocks("mlp.act_fn.alpha_p", "xielu.alpha_p"),
            TensorKey::OfBlocks("mlp.act_fn.beta", "xielu.beta"),
            TensorKey::OfBlocks("mlp.act_fn.eps", "xielu.eps"),
        ],
        ..llama::CHECKPOINT
    }],
    ..Arch::DENSE
};
