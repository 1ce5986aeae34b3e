//! GPT-NeoX and others with layer norms and RoPE, most of them with biases on every projection and without a gate.

use super::gpt2::{self, GPT2};
use crate::arch::parts::{
    ATTN_NORM, ATTN_NORM_BIAS, ATTN_OUT, ATTN_OUT_BIAS, ATTN_OUT_BIAS_OPTIONAL, ENDS, ENDS_OR_OUTPUT, FFN_NORM,
    FFN_NORM_BIAS, FFN_NORM_OPTIONAL, GATED_FFN, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED, OUTPUT_REQUIRED,
    OWN_HEAD_NORMS_OPTIONAL, PLAIN_FFN, PLAIN_FFN_BIAS, PLAIN_FFN_BIAS_OPTIONAL, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{FeedForward, Residual, RopeRule, Sum};
use crate::arch::{
    Activation, Arch, Checkpoint, Fixed, Fused, HeadDim, Key, KvHeads, RopeScaling, Rotary, TokenKey, Tokenizer, Width,
};

const SQUARED: FeedForward = FeedForward { activation: Activation::SquaredRelu, ..GPT2.feed_forward };

/// `gptneox`.
pub const GPTNEOX: Arch = Arch {
    name: "gptneox",
    models: "GPT-NeoX, Pythia, StableLM alpha, Dolly, RedPajama",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_REQUIRED],
    rope: RopeRule::PARTIAL,
    residual: Residual::Key(Sum::FeedForwardFirst),
    checkpoints: &[&Checkpoint {
        classes: &["GPTNeoXForCausalLM"],
        activations: GELU,
        root: "gpt_neox",
        names: &[
            ("embed_in.weight", &["token_embd.weight"]),
            ("final_layer_norm.weight", &["output_norm.weight"]),
            ("final_layer_norm.bias", &["output_norm.bias"]),
            ("embed_out.weight", &["output.weight"]),
            ("attention.query_key_value.weight", &["attn_qkv.weight"]),
            ("attention.query_key_value.bias", &["attn_qkv.bias"]),
            ("attention.dense.weight", &["attn_output.weight"]),
            ("attention.dense.bias", &["attn_output.bias"]),
            ("mlp.dense_h_to_4h.weight", &["ffn_up.weight"]),
            ("mlp.dense_h_to_4h.bias", &["ffn_up.bias"]),
            ("mlp.dense_4h_to_h.weight", &["ffn_down.weight"]),
            ("mlp.dense_4h_to_h.bias", &["ffn_down.bias"]),
        ],
        fused: Some(Fused::ByKeyHead),
        kv_heads: KvHeads::Queries,
        rotary: Rotary::OfHead(0.25),
        rope_scaling: RopeScaling::None,
        // the file has no base of RoPE
        fixed: &[("rotary_emb_base", Fixed::Number(10000.0))],
        keys: &[
            Key::Context,
            Key::Embedding,
            Key::Blocks,
            Key::FeedForward,
            Key::RopeDimensions,
            Key::Heads,
            Key::Flag("use_parallel_residual", "use_parallel_residual", true),
            Key::LayerEpsilon,
        ],
        ..Checkpoint::LAYER_NORMS
    }],
    ..GPT2
};

/// The names of activation functions that llama.cpp computes with its only GELU.
const GELU: &[&str] = &["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"];

/// `codeshell`.
pub const CODESHELL: Arch = Arch {
    name: "codeshell",
    models: "CodeShell",
    ends: &[ENDS_OR_OUTPUT, OUTPUT_NORM_BIAS, OUTPUT_REQUIRED],
    block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS,
        QKV,
        ATTN_OUT,
        ATTN_OUT_BIAS,
        FFN_NORM,
        FFN_NORM_BIAS,
        PLAIN_FFN,
        PLAIN_FFN_BIAS,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule::HALVES,
    residual: Residual::Sequential,
    checkpoints: &[&Checkpoint {
        classes: &["CodeShellForCausalLM"],
        activations: GELU,
        root: "transformer",
        blocks: "h",
        names: gpt2::NAMES,
        fused: Some(Fused::InOrder),
        width: Width::Fourfold,
        context_names: &["n_positions"],
        rope_scaling: RopeScaling::None,
        keys: &[
            Key::Context,
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            Key::KvHeads,
            Key::LayerEpsilon,
            Key::FileType,
            Key::ConstantNumber("rope.freq_base", 10000.0),
            Key::UnitScaling,
        ],
        ..Checkpoint::LAYER_NORMS
    }],
    ..GPTNEOX
};

/// `starcoder2`.
pub const STARCODER2: Arch = Arch {
    name: "starcoder2",
    models: "StarCoder 2",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED],
    checkpoints: &[&Checkpoint {
        classes: &["Starcoder2ForCausalLM"],
        activations: GELU,
        tied: true,
        names: &[
            ("mlp.c_fc.weight", &["ffn_up.weight"]),
            ("mlp.c_fc.bias", &["ffn_up.bias"]),
            ("mlp.c_proj.weight", &["ffn_down.weight"]),
            ("mlp.c_proj.bias", &["ffn_down.bias"]),
        ],
        kv_heads: KvHeads::StatedOr(2),
        context: 4096,
        ..Checkpoint::LAYER_NORMS
    }],
    ..CODESHELL
};

/// `jais2`.
pub const JAIS2: Arch = Arch {
    name: "jais2",
    models: "Jais 2",
    feed_forward: SQUARED,
    checkpoints: &[&Checkpoint {
        classes: &["Jais2ForCausalLM"],
        activations: &["relu2"],
        more_keys: &[Key::RopeDimensions],
        ..Checkpoint::LAYER_NORMS
    }],
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
    checkpoints: &[&Checkpoint {
        classes: &["NemotronForCausalLM"],
        activations: &["relu2"],
        norms_plus_one: true,
        head_dim: HeadDim::Quotient,
        rms_eps: Some(1e-5),
        layer_eps: None,
        rotary: Rotary::OfWidth(0.5),
        fixed: &[("factor", Fixed::Unset)],
        more_keys: &[
            Key::VocabSize,
            Key::FractionOr(
                &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"],
                "attention.layer_norm_epsilon",
                1e-5,
            ),
            Key::RopeDimensions,
            Key::Text("rope.scaling.type", "none"),
        ],
        tokenizer: Tokenizer::Any,
        token_keys: &[TokenKey::Id("padding_token_id", 0), TokenKey::Id("unknown_token_id", 1)],
        ..Checkpoint::LAYER_NORMS
    }],
    ..CODESHELL
};

/// `orion`.
pub const ORION: Arch = Arch {
    name: "orion",
    models: "Orion",
    block: &[ATTN_NORM, ATTN_NORM_BIAS, QKV, ATTN_OUT, FFN_NORM, FFN_NORM_BIAS, GATED_FFN, QKV_BIAS_OPTIONAL],
    feed_forward: Arch::DENSE.feed_forward,
    checkpoints: &[&Checkpoint {
        classes: &["OrionForCausalLM"],
        context_names: &["max_sequence_length", "max_position_embeddings", "model_max_length"],
        keys: &[
            Key::FileType,
            Key::Text("tensor_data_layout", "Meta AI original pth"),
            Key::Context,
            Key::Embedding,
            Key::Blocks,
            Key::FeedForward,
            Key::Heads,
            Key::KvHeads,
            Key::FractionOr(&["rms_norm_eps"], "attention.layer_norm_epsilon", 1e-5),
        ],
        ..Checkpoint::USUAL
    }],
    ..CODESHELL
};

/// The reference's converter multiplies matrices into its tables of tokens, with sums in an order that depends on the
/// processor, so that there is no file to compare with.
pub(super) const FOLDED: &str = "no: tables of products, whose last bits the reference leaves open";

/// `pockettts`.
pub const POCKETTTS: Arch = Arch {
    name: "pockettts",
    models: "Pocket TTS",
    ends: &[ENDS, OUTPUT_NORM_BIAS],
    block: &[ATTN_NORM, ATTN_NORM_BIAS, QKV, ATTN_OUT, FFN_NORM, FFN_NORM_BIAS, PLAIN_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule::ADJACENT,
    checkpoints: &[],
    unconverted: FOLDED,
    ..CODESHELL
};

/// `stablelm`: the sublayers of a block run in parallel where it has one norm.
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
    checkpoints: &[&Checkpoint {
        classes: &["StableLmForCausalLM", "StableLMEpochForCausalLM"],
        names: &[
            ("self_attn.q_layernorm.norms.*.weight", &["attn_q_norm.weight"]),
            ("self_attn.k_layernorm.norms.*.weight", &["attn_k_norm.weight"]),
        ],
        kv_heads: KvHeads::StatedOr(32),
        context: 4096,
        rotary: Rotary::OfHead(0.25),
        rope_scaling: RopeScaling::None,
        // the file has no base of RoPE
        fixed: &[("rope_theta", Fixed::Number(10000.0))],
        keys: &[
            Key::Context,
            Key::Embedding,
            Key::Blocks,
            Key::FeedForward,
            Key::RopeDimensions,
            Key::Heads,
            Key::KvHeads,
            Key::Flag("use_parallel_residual", "use_parallel_residual", false),
            Key::LayerEpsilon,
            Key::FileType,
        ],
        ..Checkpoint::LAYER_NORMS
    }],
    ..GPTNEOX
};
