//! Diffusion models: Dream, LLaDA and RND1, the graphs of others with attention in both directions.

use super::llama::LLAMA;
use super::qwen::{DOWN_GATE_UP, EXPERT_NAMES, QWEN2, QWEN3MOE};
use crate::arch::factors::ATTENTION_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, OUTPUT_OR_TIED, OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{Attention, ExpertRule, Normalize};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, TokenKey, Tokenizer};

const BOTH_WAYS: Attention = Attention { both_ways: true, ..Attention::USUAL };

/// `dream`; the output bias is not added.
pub const DREAM: Arch = Arch {
    name: "dream",
    models: "Dream 7B",
    ends: &[ENDS, OUTPUT_OR_TIED],
    attention: BOTH_WAYS,
    ignored: &["output.bias"],
    checkpoints: &[&Checkpoint {
        classes: &["DreamModel"],
        head_dim: HeadDim::Implied,
        more_keys: &[Key::Pooling, Key::ConstantFlag("attention.causal", false), MASK],
        ..Checkpoint::USUAL
    }],
    ..QWEN2
};

const MASK: Key = Key::Token("mask_token_id", "mask_token_id");

/// `llada`; biases of the output projection and the feed-forward network and divisors of RoPE mean nothing.
pub const LLADA: Arch = Arch {
    name: "llada",
    models: "LLaDA 8B",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[],
    attention: BOTH_WAYS,
    scaled: ATTENTION_SCALES,
    ignored: &["rope_freqs.weight", "attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"],
    checkpoints: &[&Checkpoint {
        classes: &["LLaDAModelLM"],
        root: "model.transformer",
        blocks: "blocks",
        names: &[
            ("wte.weight", &["token_embd.weight"]),
            ("ln_f.weight", &["output_norm.weight"]),
            ("ff_out.weight", &["output.weight"]),
        ],
        more_names: &[
            ("attn_norm.weight", &["attn_norm.weight"]),
            ("q_proj.weight", &["attn_q.weight"]),
            ("k_proj.weight", &["attn_k.weight"]),
            ("v_proj.weight", &["attn_v.weight"]),
            ("attn_out.weight", &["attn_output.weight"]),
            ("ff_norm.weight", &["ffn_norm.weight"]),
            ("ff_proj.weight", &["ffn_gate.weight"]),
            ("up_proj.weight", &["ffn_up.weight"]),
            ("ff_out.weight", &["ffn_down.weight"]),
        ],
        width_names: &["mlp_hidden_size"],
        context_names: &["max_sequence_length"],
        keys: &[
            Key::Blocks,
            Key::Context,
            Key::Heads,
            Key::KvHeads,
            Key::RopeBase,
            Key::RmsEpsilon,
            Key::FileType,
            Key::Pooling,
            Key::VocabSize,
            Key::RopeDimensions,
            Key::Embedding,
            Key::FeedForward,
            Key::ConstantFlag("attention.causal", false),
            Key::NoShift,
        ],
        tokenizer: Tokenizer::Json,
        token_keys: &[TokenKey::AddBos(true)],
        ..Checkpoint::USUAL
    }],
    ..LLAMA
};

/// `rnd1`.
pub const RND1: Arch = Arch {
    name: "rnd1",
    models: "RND1 30B-A3B",
    attention: BOTH_WAYS,
    scaled: ATTENTION_SCALES,
    checkpoints: &[&Checkpoint {
        classes: &["RND1"],
        names: EXPERT_NAMES,
        head_dim: HeadDim::Implied,
        more_keys: &[Key::ExpertWidth, Key::ConstantFlag("attention.causal", false), MASK],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..QWEN3MOE
};

/// `llada-moe`.
pub const LLADA_MOE: Arch = Arch {
    name: "llada-moe",
    models: "LLaDA MoE 7B-A1B",
    ends: &[ENDS, OUTPUT_REQUIRED],
    experts: ExpertRule { normalize: Normalize::Never, ..QWEN3MOE.experts },
    checkpoints: &[&Checkpoint {
        classes: &["LLaDAMoEModel", "LLaDAMoEModelLM"],
        names: DOWN_GATE_UP,
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::Whole(&["expert_intermediate_size"], "expert_feed_forward_length"),
            Key::OwnToken("mask_token_id", 156_895),
            Key::ConstantFlag("attention.causal", false),
            Key::NoShift,
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..RND1
};
