//! Dense relatives of LLaMA.

use super::llama::{self, LLAMA};
use crate::arch::factors::{ATTENTION_SCALES, DENSE_SCALES};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_BIAS_OPTIONAL, FFN_NORM, FFN_NORM_AFTER_ATTN,
    GATED_FFN, HEAD_NORMS, OUTPUT_OR_TIED, OUTPUT_REQUIRED, PLAIN_FFN, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS,
    ROPE_FACTORS_BY_CONTEXT,
};
use crate::arch::rules::{
    Alibi, Attention, ExpertRule, FeedForward, Mixing, QkNorms, Recurrence, RopeLayers, RopeRule,
};
use crate::arch::{
    Activation, Arch, Checkpoint, Fixed, HeadDim, Key, KvHeads, RopeScaling, SpacePrefix, Step, TokenKey, Tokenizer,
    Width,
};

/// LLaMA's graph without biases on the output projection and the feed-forward network.
const RELATIVE: Arch = Arch {
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[],
    scaled: ATTENTION_SCALES,
    checkpoints: &[],
    ..LLAMA
};

/// `arcee`: squared ReLU without a gate.
pub const ARCEE: Arch = Arch {
    name: "arcee",
    models: "Arcee AFM",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, PLAIN_FFN, QKV_BIAS_OPTIONAL],
    feed_forward: FeedForward { activation: Activation::SquaredRelu, ..RELATIVE.feed_forward },
    checkpoints: &[&Checkpoint {
        classes: &["ArceeForCausalLM"],
        activations: &["relu2"],
        context: 4096,
        rms_eps: Some(1e-5),
        ..llama::CHECKPOINT
    }],
    ..RELATIVE
};

/// `baichuan`: the 7B model, of 32 layers, has RoPE, the 13B model, of 40, ALiBi; llama.cpp knows them by that.
pub const BAICHUAN: Arch = Arch {
    name: "baichuan",
    models: "Baichuan 1, Baichuan 2",
    ends: &[ENDS, OUTPUT_REQUIRED],
    attention: Attention { alibi: Alibi::Layers(40, 8.0), ..Attention::USUAL },
    rope: RopeRule { layers: RopeLayers::InModelsOf(32), ..RopeRule::ADJACENT },
    checkpoints: &[&Checkpoint {
        classes: &["BaichuanForCausalLM", "BaiChuanForCausalLM"],
        names: &[("self_attn.W_pack.weight", &["attn_q.weight", "attn_k.weight", "attn_v.weight"])],
        head_dim: HeadDim::Implied,
        kv_heads: KvHeads::StatedAlone,
        rope_theta: 0.0,
        context_names: &["max_position_embeddings", "max_sequence_length", "model_max_length"],
        more_keys: &[Key::Text("tensor_data_layout", "Meta AI original pth"), Key::RopeDimensions],
        ..Checkpoint::USUAL
    }],
    ..RELATIVE
};

/// `deci`: some blocks have no attention, or a matrix in its place, or nothing at all.
pub const DECI: Arch = Arch {
    name: "deci",
    models: "DeciLM, Llama Nemotron",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT],
    block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        FFN_NORM,
        GATED_FFN,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
        FFN_BIAS_OPTIONAL,
    ],
    mixing: Mixing::ByHeadsOrNone(Recurrence::Matrix),
    feed_forward: FeedForward { by_layer: true, ..RELATIVE.feed_forward },
    checkpoints: &[
        &Checkpoint {
            classes: &["DeciLMForCausalLM"],
            head_dim: HeadDim::Implied,
            kv_heads: KvHeads::StatedAlone,
            more_keys: &[
                Key::Numbers("num_key_value_heads_per_layer", "attention.head_count_kv"),
                Key::VocabSize,
                Key::RopeDimensions,
            ],
            token_rules: &[],
            space_prefix: SpacePrefix::Tokenizer,
            ..llama::CHECKPOINT
        },
        &Checkpoint {
            classes: &["DeciLMForCausalLM"],
            told_by: Some("block_configs"),
            width: Width::StatedIfAny,
            names: &[("self_attn.linear_attn.weight", &["attn_output.weight"])],
            keys: &[
                Key::RopeBase,
                Key::BlockKvHeads,
                Key::BlockHeads,
                Key::BlockWidths,
                Key::Blocks,
                Key::Context,
                Key::Embedding,
                Key::RmsEpsilon,
                Key::HeadSizes,
                Key::FileType,
            ],
            tokenizer: Tokenizer::Json,
            token_rules: &[],
            space_prefix: SpacePrefix::Tokenizer,
            ..llama::CHECKPOINT
        },
    ],
    ..RELATIVE
};

/// `internlm2`.
pub const INTERNLM2: Arch = Arch {
    name: "internlm2",
    models: "InternLM 2, InternLM 3",
    ends: &[ENDS, OUTPUT_REQUIRED],
    checkpoints: &[&Checkpoint {
        classes: &["InternLM2ForCausalLM"],
        names: &[
            ("tok_embeddings.weight", &["token_embd.weight"]),
            ("output.weight", &["output.weight"]),
            ("attention_norm.weight", &["attn_norm.weight"]),
            ("ffn_norm.weight", &["ffn_norm.weight"]),
            ("attention.wqkv.weight", &["attn_q.weight", "attn_k.weight", "attn_v.weight"]),
            ("attention.wo.weight", &["attn_output.weight"]),
            ("feed_forward.w1.weight", &["ffn_gate.weight"]),
            ("feed_forward.w2.weight", &["ffn_down.weight"]),
            ("feed_forward.w3.weight", &["ffn_up.weight"]),
        ],
        steps: &[("attention.wqkv.weight", &[Step::ByServedHeads])],
        head_dim: HeadDim::Implied,
        rope_scaling: RopeScaling::AnyOrDynamic,
        tokenizer: Tokenizer::InternLm2,
        token_keys: &[TokenKey::Added("<|im_end|>", "eos_token_id")],
        ..Checkpoint::USUAL
    }],
    ..RELATIVE
};

/// `maincoder`: norms on every query and key head after RoPE.
pub const MAINCODER: Arch = Arch {
    name: "maincoder",
    models: "Maincoder",
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    attention: Attention { qk_norms: QkNorms::AfterRope, ..Attention::USUAL },
    checkpoints: &[&Checkpoint {
        classes: &["MaincoderForCausalLM"],
        head_dim: HeadDim::Implied,
        neighbours: true,
        more_keys: &[Key::Whole(&["head_dim"], "rope.dimension_count")],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..RELATIVE
};

/// `nanbeige`, as far as its layers run once.
pub const NANBEIGE: Arch = Arch {
    name: "nanbeige",
    models: "Nanbeige",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS],
    rope: RopeRule { partial: true, ..RopeRule::ADJACENT },
    scaled: DENSE_SCALES,
    fixed_keys: &[("num_loops", 1)],
    checkpoints: &[&Checkpoint {
        classes: &["NanbeigeForCausalLM"],
        head_dim: HeadDim::Implied,
        fixed: &[("num_loops", Fixed::Number(1.0))],
        more_keys: &[
            Key::VocabSize,
            Key::RopeDimensions,
            Key::WholeOr(&["num_loops"], "num_loops", 1),
            Key::Flag("skip_loop_final_norm", "skip_loop_final_norm", false),
        ],
        ..llama::CHECKPOINT
    }],
    ..RELATIVE
};

/// `pangu-embedded`.
pub const PANGU: Arch = Arch {
    name: "pangu-embedded",
    models: "openPangu Embedded",
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS],
    rope: RopeRule::HALVES,
    // the graph does not pass them to RoPE
    ignored: &["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"],
    checkpoints: &[&Checkpoint {
        classes: &["PanguEmbeddedForCausalLM"],
        head_dim: HeadDim::Implied,
        more_keys: &[Key::VocabSize, Key::RopeDimensions, Key::HeadSizesIfUnsaid],
        space_prefix: SpacePrefix::ConfigLast,
        tied_left_out: true,
        ..Checkpoint::USUAL
    }],
    ..RELATIVE
};

/// `refact`: ALiBi; biases of the output projection and the feed-forward network are not added, and experts are not
/// computed, as in the reference.
pub const REFACT: Arch = Arch {
    name: "refact",
    models: "Refact 1.6B",
    attention: Attention { alibi: Alibi::Fixed(8.0), ..Attention::USUAL },
    rope: RopeRule::NONE,
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, QKV_BIAS_OPTIONAL],
    experts: ExpertRule { unused: true, ..ExpertRule::USUAL },
    ignored: &[
        "ffn_gate_inp.weight",
        "ffn_gate_exps.weight",
        "ffn_up_exps.weight",
        "ffn_down_exps.weight",
        "rope_freqs.weight",
        "rope_factors_long.weight",
        "rope_factors_short.weight",
        "attn_output.bias",
        "ffn_gate.bias",
        "ffn_up.bias",
        "ffn_down.bias",
    ],
    checkpoints: &[&Checkpoint {
        classes: &["GPTRefactForCausalLM"],
        root: "transformer",
        blocks: "h",
        names: &[
            ("wte.weight", &["token_embd.weight"]),
            ("ln_f.weight", &["output_norm.weight"]),
            ("ln_1.weight", &["attn_norm.weight"]),
            ("attn.q.weight", &["attn_q.weight"]),
            ("attn.kv.weight", &["attn_k.weight", "attn_v.weight"]),
            ("attn.c_proj.weight", &["attn_output.weight"]),
            ("ln_2.weight", &["ffn_norm.weight"]),
            ("mlp.gate_up_proj.weight", &["ffn_gate.weight", "ffn_up.weight"]),
            ("mlp.c_proj.weight", &["ffn_down.weight"]),
        ],
        neighbours: true,
        kv_heads: KvHeads::One,
        width: Width::TwoThirds,
        context_names: &["n_positions"],
        keys: &[
            Key::Context,
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            Key::KvHeads,
            Key::FractionOr(&["layer_norm_epsilon"], "attention.layer_norm_rms_epsilon", 1e-5),
            Key::FileType,
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..RELATIVE
};

/// `seed_oss`.
pub const SEED_OSS: Arch = Arch {
    name: "seed_oss",
    models: "Seed-OSS",
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM_AFTER_ATTN, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule::HALVES,
    checkpoints: &[&Checkpoint {
        classes: &["SeedOssForCausalLM"],
        names: &[("post_attention_layernorm.weight", &["post_attention_norm.weight"])],
        kv_heads: KvHeads::StatedOr(8),
        head_dim: HeadDim::Fixed(128),
        context: 524_288,
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..RELATIVE
};

/// `smollm3`: every fourth layer has no RoPE.
pub const SMOLLM3: Arch = Arch {
    name: "smollm3",
    models: "SmolLM 3",
    rope: RopeRule { layers: RopeLayers::ButLastOf(4), ..RopeRule::ADJACENT },
    checkpoints: &[&Checkpoint {
        classes: &["SmolLM3ForCausalLM"],
        activations: &["silu"],
        tied: true,
        head_dim: HeadDim::Implied,
        kv_heads: KvHeads::StatedOr(4),
        context: 32768,
        rope_theta: 2_000_000.0,
        fixed: &[("no_rope_layer_interval", Fixed::Number(4.0)), ("use_sliding_window", Fixed::Unset)],
        ..llama::CHECKPOINT
    }],
    ..RELATIVE
};

/// `xverse`.
pub const XVERSE: Arch = Arch {
    name: "xverse",
    models: "XVERSE",
    ends: &[ENDS, OUTPUT_REQUIRED],
    checkpoints: &[&Checkpoint {
        classes: &["XverseForCausalLM"],
        activations: &["silu"],
        head_dim: HeadDim::Implied,
        kv_heads: KvHeads::StatedAlone,
        rope_theta: 0.0,
        more_keys: &[Key::Text("tensor_data_layout", "Meta AI original pth"), Key::RopeDimensions],
        tokenizer: Tokenizer::Xverse,
        ..Checkpoint::USUAL
    }],
    ..RELATIVE
};
