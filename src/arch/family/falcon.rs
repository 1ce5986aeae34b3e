//! Falcon 1: the sublayers of a block run in parallel, in the large models with a norm each. Falcon H1: attention and
//! Mamba 2 beside each other.

use super::gpt2::GPT2;
use crate::arch::factors::SSM_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_NORM_2_OPTIONAL, ATTN_NORM_BIAS, ATTN_OUT, ENDS, FFN_BIAS_OPTIONAL, FFN_NORM_BARE, GATED_FFN,
    OUTPUT_NORM_BIAS, OUTPUT_OR_TIED, PLAIN_FFN, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS_OPTIONAL, GROUP_NORM_OPTIONAL, MAMBA_2};
use crate::arch::rules::{Mixing, Recurrence, Residual, RopeRule, Sum};
use crate::arch::{Arch, Checkpoint, Fixed, Fused, Key, KvHeads, RopeScaling, Width};

/// `falcon`.
pub const FALCON: Arch = Arch {
    name: "falcon",
    models: "Falcon 7B, 40B, 180B",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, ATTN_NORM_BIAS, ATTN_NORM_2_OPTIONAL, QKV, ATTN_OUT, PLAIN_FFN],
    rope: RopeRule::HALVES,
    residual: Residual::Parallel(Sum::HalvesFirst),
    checkpoints: &[&Checkpoint {
        classes: &["FalconForCausalLM", "RWForCausalLM"],
        activations: &["gelu", "gelu_new", "gelu_pytorch_tanh"],
        tied: true,
        root: "transformer",
        blocks: "h",
        names: &[
            ("word_embeddings.weight", &["token_embd.weight"]),
            ("ln_f.weight", &["output_norm.weight"]),
            ("ln_f.bias", &["output_norm.bias"]),
            ("ln_mlp.weight", &["attn_norm.weight"]),
            ("ln_mlp.bias", &["attn_norm.bias"]),
            ("ln_attn.weight", &["attn_norm_2.weight"]),
            ("ln_attn.bias", &["attn_norm_2.bias"]),
            ("self_attention.query_key_value.weight", &["attn_qkv.weight"]),
            ("self_attention.dense.weight", &["attn_output.weight"]),
            ("mlp.dense_h_to_4h.weight", &["ffn_up.weight"]),
            ("mlp.dense_4h_to_h.weight", &["ffn_down.weight"]),
        ],
        fused: Some(Fused::ByKeyHead),
        kv_heads: KvHeads::Falcon,
        width: Width::Fourfold,
        rope_scaling: RopeScaling::None,
        // the file has no base of RoPE, and the graph none of the others
        fixed: &[
            ("rope_theta", Fixed::Number(10000.0)),
            ("alibi", Fixed::Unset),
            ("bias", Fixed::Unset),
            ("parallel_attn", Fixed::True),
        ],
        keys: &[
            // no config.json says it
            Key::Constant("context_length", 2048),
            Key::Text("tensor_data_layout", "jploski"),
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            Key::KvHeads,
            Key::LayerEpsilon,
            Key::FileType,
        ],
        ..Checkpoint::LAYER_NORMS
    }],
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
