//! GPT-2 and its kin without RoPE: learned positions (GPT-2, StarCoder) or ALiBi (BLOOM, MPT, Jais), layer norms with
//! biases, biases on every projection.

use crate::arch::parts::{
    ACTIVATION_SCALES, ATTN_NORM, ATTN_NORM_BIAS, ATTN_NORM_BIAS_OPTIONAL, ATTN_OUT, ATTN_OUT_BIAS,
    ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_BIAS, FFN_NORM, FFN_NORM_BIAS, FFN_NORM_BIAS_OPTIONAL, GATED_FFN,
    OUTPUT_NORM_BIAS, OUTPUT_NORM_BIAS_OPTIONAL, OUTPUT_OR_TIED, OUTPUT_REQUIRED, PLAIN_FFN, PLAIN_FFN_BIAS,
    PLAIN_FFN_BIAS_OPTIONAL, POSITIONS, POSITIONS_OPTIONAL, QK_NORMS_OPTIONAL, QKV, QKV_BIAS, QKV_BIAS_OPTIONAL,
    TOKEN_NORM,
};
use crate::arch::rules::{Alibi, Attention, FeedForward, NormKind, RopeRule, ScoreScale};
use crate::arch::{
    Activation, Arch, Checkpoint, Factor, Fixed, Fused, Key, KvHeads, Name, RopeScaling, Step, TensorKey, TokenKey,
    Width,
};

/// `gpt2`.
pub const GPT2: Arch = Arch {
    name: "gpt2",
    models: "GPT-2, Cerebras-GPT",
    ends: &[ENDS, POSITIONS, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED],
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
        QKV_BIAS,
    ],
    norm: NormKind::Layer,
    rope: RopeRule::NONE,
    feed_forward: FeedForward { activation: Activation::Gelu, ..Arch::DENSE.feed_forward },
    checkpoints: &[&Checkpoint {
        classes: &["GPT2LMHeadModel"],
        more_names: POSITION_NAMES,
        transposed: true,
        kv_heads: KvHeads::Queries,
        fixed: &[("scale_attn_by_inverse_layer_idx", Fixed::Unset), ("scale_attn_weights", Fixed::True)],
        keys: KEYS,
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};

/// `opt`: GPT-2 with ReLU. llama.cpp has no such architecture.
pub const OPT: Arch = Arch {
    name: "opt",
    models: "OPT 125M, 1.3B to 66B",
    feed_forward: FeedForward { activation: Activation::Relu, ..GPT2.feed_forward },
    checkpoints: &[&Checkpoint {
        classes: &["OPTForCausalLM"],
        activations: &["relu"],
        tied: true,
        root: "model.decoder",
        names: &[
            ("embed_positions.weight", &["position_embd.weight"]),
            ("final_layer_norm.weight", &["output_norm.weight"]),
            ("final_layer_norm.bias", &["output_norm.bias"]),
        ],
        more_names: &[
            ("self_attn_layer_norm.weight", &["attn_norm.weight"]),
            ("self_attn_layer_norm.bias", &["attn_norm.bias"]),
            ("self_attn.out_proj.weight", &["attn_output.weight"]),
            ("self_attn.out_proj.bias", &["attn_output.bias"]),
            ("final_layer_norm.weight", &["ffn_norm.weight"]),
            ("final_layer_norm.bias", &["ffn_norm.bias"]),
            ("fc1.weight", &["ffn_up.weight"]),
            ("fc1.bias", &["ffn_up.bias"]),
            ("fc2.weight", &["ffn_down.weight"]),
            ("fc2.bias", &["ffn_down.bias"]),
        ],
        // positions are counted from 2
        steps: &[("embed_positions.weight", &[Step::Behind(2)])],
        kv_heads: KvHeads::Queries,
        width_names: &["ffn_dim"],
        context_names: &["max_position_embeddings"],
        rope_scaling: RopeScaling::None,
        fixed: &[
            // OPT 350M norms sums, and has narrower embeddings
            ("do_layer_norm_before", Fixed::True),
            ("enable_bias", Fixed::True),
            ("layer_norm_elementwise_affine", Fixed::True),
            ("_remove_final_layer_norm", Fixed::Unset),
        ],
        keys: KEYS,
        token_keys: &[TokenKey::AddBos(true)],
        ..Checkpoint::LAYER_NORMS
    }],
    ..GPT2
};

/// The names of GPT-2's tensors, but for its positions.
pub const NAMES: &[Name] = &[
    ("wte.weight", &["token_embd.weight"]),
    ("ln_f.weight", &["output_norm.weight"]),
    ("ln_f.bias", &["output_norm.bias"]),
    ("ln_1.weight", &["attn_norm.weight"]),
    ("ln_1.bias", &["attn_norm.bias"]),
    ("attn.c_attn.weight", &["attn_qkv.weight"]),
    ("attn.c_attn.bias", &["attn_qkv.bias"]),
    ("attn.c_proj.weight", &["attn_output.weight"]),
    ("attn.c_proj.bias", &["attn_output.bias"]),
    ("ln_2.weight", &["ffn_norm.weight"]),
    ("ln_2.bias", &["ffn_norm.bias"]),
    ("mlp.c_fc.weight", &["ffn_up.weight"]),
    ("mlp.c_fc.bias", &["ffn_up.bias"]),
    ("mlp.c_proj.weight", &["ffn_down.weight"]),
    ("mlp.c_proj.bias", &["ffn_down.bias"]),
];
/// That of its positions.
const POSITION_NAMES: &[Name] = &[("wpe.weight", &["position_embd.weight"])];

/// The keys of GPT-2's files.
const KEYS: &[Key] =
    &[Key::Blocks, Key::Context, Key::Embedding, Key::FeedForward, Key::Heads, Key::LayerEpsilon, Key::FileType];

/// The common part of checkpoints like GPT-2's.
const CHECKPOINT: Checkpoint = Checkpoint {
    activations: &["gelu_new", "gelu_pytorch_tanh", "gelu", "gelu_fast"],
    tied: true,
    root: "transformer",
    blocks: "h",
    names: NAMES,
    fused: Some(Fused::InOrder),
    width: Width::Fourfold,
    context_names: &["n_ctx", "n_positions"],
    context: 1024,
    rope_scaling: RopeScaling::None,
    ..Checkpoint::LAYER_NORMS
};

/// `starcoder`.
pub const STARCODER: Arch = Arch {
    name: "starcoder",
    models: "StarCoder 1, SantaCoder",
    checkpoints: &[&Checkpoint {
        classes: &["GPTBigCodeForCausalLM"],
        more_names: POSITION_NAMES,
        kv_heads: KvHeads::One,
        context_names: &["n_positions"],
        fixed: &[("multi_query", Fixed::True), ("scale_attn_weights", Fixed::True)],
        keys: &[
            Key::Context,
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            Key::KvHeads,
            Key::LayerEpsilon,
            Key::FileType,
        ],
        ..CHECKPOINT
    }],
    ..GPT2
};

/// `bloom`: a norm of the embeddings.
pub const BLOOM: Arch = Arch {
    name: "bloom",
    checkpoints: &[&Checkpoint {
        classes: &["BloomForCausalLM"],
        names: &[
            ("word_embeddings.weight", &["token_embd.weight"]),
            ("word_embeddings_layernorm.weight", &["token_embd_norm.weight"]),
            ("word_embeddings_layernorm.bias", &["token_embd_norm.bias"]),
            ("ln_f.weight", &["output_norm.weight"]),
            ("ln_f.bias", &["output_norm.bias"]),
            ("self_attention.query_key_value.weight", &["attn_qkv.weight"]),
            ("self_attention.query_key_value.bias", &["attn_qkv.bias"]),
            ("self_attention.dense.weight", &["attn_output.weight"]),
            ("self_attention.dense.bias", &["attn_output.bias"]),
            ("mlp.dense_h_to_4h.weight", &["ffn_up.weight"]),
            ("mlp.dense_h_to_4h.bias", &["ffn_up.bias"]),
            ("mlp.dense_4h_to_h.weight", &["ffn_down.weight"]),
            ("mlp.dense_4h_to_h.bias", &["ffn_down.bias"]),
        ],
        fused: Some(Fused::ByKeyHead),
        kv_heads: KvHeads::Queries,
        context_names: &["seq_length"],
        context: 0,
        fixed: &[("apply_residual_connection_post_layernorm", Fixed::Unset)],
        keys: &[
            Key::Context,
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            Key::KvHeads,
            Key::LayerEpsilon,
            Key::FileType,
        ],
        ..CHECKPOINT
    }],
    models: "BLOOM",
    ends: &[ENDS, TOKEN_NORM, OUTPUT_NORM_BIAS, OUTPUT_OR_TIED],
    attention: Attention { alibi: Alibi::Fixed(8.0), ..Attention::USUAL },
    ..GPT2
};

/// `mpt`: all biases are optional, and so are positions, norms of queries and keys and divisors of the activation.
pub const MPT: Arch = Arch {
    name: "mpt",
    models: "MPT",
    ends: &[ENDS, POSITIONS_OPTIONAL, OUTPUT_NORM_BIAS_OPTIONAL, OUTPUT_OR_TIED],
    block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS_OPTIONAL,
        QKV,
        QK_NORMS_OPTIONAL,
        ATTN_OUT,
        ATTN_OUT_BIAS_OPTIONAL,
        FFN_NORM,
        FFN_NORM_BIAS_OPTIONAL,
        PLAIN_FFN,
        PLAIN_FFN_BIAS_OPTIONAL,
        ACTIVATION_SCALES,
        QKV_BIAS_OPTIONAL,
    ],
    attention: Attention { alibi: Alibi::Key, clamp: true, ..Attention::USUAL },
    // norms of keys without those of queries are not computed
    ignored: &["attn_k_norm.weight", "attn_k_norm.bias"],
    checkpoints: &[&Checkpoint {
        classes: &["MPTForCausalLM"],
        blocks: "blocks",
        names: &[
            ("wte.weight", &["token_embd.weight"]),
            ("norm_f.weight", &["output_norm.weight"]),
            ("norm_1.weight", &["attn_norm.weight"]),
            ("attn.Wqkv.weight", &["attn_qkv.weight"]),
            ("attn.out_proj.weight", &["attn_output.weight"]),
            ("norm_2.weight", &["ffn_norm.weight"]),
            ("ffn.up_proj.weight", &["ffn_up.weight"]),
            ("ffn.down_proj.weight", &["ffn_down.weight"]),
        ],
        kv_heads: KvHeads::StatedAlone,
        fixed: &[("attn_config.alibi", Fixed::True)],
        context_names: &["max_seq_len"],
        keys: &[
            Key::Context,
            Key::Embedding,
            Key::Blocks,
            Key::FeedForward,
            Key::Heads,
            Key::Whole(&["attn_config.kv_n_heads"], "attention.head_count_kv"),
            Key::ConstantNumber("attention.layer_norm_epsilon", 1e-5),
            Key::Fraction(&["attn_config.clip_qkv"], "attention.clamp_kqv"),
            Key::Fraction(&["attn_config.alibi_bias_max"], "attention.max_alibi_bias"),
        ],
        ..CHECKPOINT
    }],
    ..GPT2
};

/// `jais`: a gate, and scores divided by the head size.
pub const JAIS: Arch = Arch {
    name: "jais",
    checkpoints: &[&Checkpoint {
        classes: &["JAISLMHeadModel"],
        activations: &["swiglu"],
        root: "transformer",
        blocks: "h",
        names: NAMES,
        more_names: &[("mlp.c_fc2.weight", &["ffn_gate.weight"]), ("mlp.c_fc2.bias", &["ffn_gate.bias"])],
        steps: &[
            ("wte.weight", &[Step::Times(&[Factor::First(&["mup_embeddings_scale", "embeddings_scale"])])]),
            (
                "lm_head.weight",
                &[Step::Times(&[Factor::ProductOr(["mup_output_alpha", "mup_width_scale"], "width_scale")])],
            ),
        ],
        tensor_keys: &[TensorKey::Slopes("relative_pe.slopes", "attention.max_alibi_bias")],
        fused: Some(Fused::InOrder),
        transposed: true,
        fixed: &[("position_embedding_type", Fixed::Text("alibi"))],
        keys: KEYS,
        ..Checkpoint::LAYER_NORMS
    }],
    models: "Jais 13B, 30B",
    ends: &[ENDS, OUTPUT_NORM_BIAS, OUTPUT_REQUIRED],
    block: &[
        ATTN_NORM,
        ATTN_NORM_BIAS,
        QKV,
        ATTN_OUT,
        ATTN_OUT_BIAS,
        FFN_NORM,
        FFN_NORM_BIAS,
        GATED_FFN,
        FFN_BIAS,
        QKV_BIAS,
    ],
    attention: Attention { scale: ScoreScale::Inverse, alibi: Alibi::Key, ..Attention::USUAL },
    feed_forward: Arch::DENSE.feed_forward,
    ..GPT2
};
