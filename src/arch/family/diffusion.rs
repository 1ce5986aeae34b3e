//! Diffusion models: Dream, LLaDA and RND1, the graphs of others with attention in both directions.

use super::llama::LLAMA;
use super::qwen::{QWEN2, QWEN3MOE};
use crate::arch::Arch;
use crate::arch::factors::ATTENTION_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, OUTPUT_OR_TIED, OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{Attention, ExpertRule, Normalize};

const BOTH_WAYS: Attention = Attention { both_ways: true, ..Attention::USUAL };

/// `dream`; the output bias is not added.
pub const DREAM: Arch = Arch {
    name: "dream",
    models: "Dream 7B",
    ends: &[ENDS, OUTPUT_OR_TIED],
    attention: BOTH_WAYS,
    ignored: &["output.bias"],
    checkpoints: &[],
    ..QWEN2
};

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
    checkpoints: &[],
    ..LLAMA
};

/// `rnd1`.
pub const RND1: Arch = Arch {
    name: "rnd1",
    models: "RND1 30B-A3B",
    attention: BOTH_WAYS,
    scaled: ATTENTION_SCALES,
    checkpoints: &[],
    ..QWEN3MOE
};

/// `llada-moe`.
pub const LLADA_MOE: Arch = Arch {
    name: "llada-moe",
    models: "LLaDA MoE 7B-A1B",
    ends: &[ENDS, OUTPUT_REQUIRED],
    experts: ExpertRule { normalize: Normalize::Never, ..QWEN3MOE.experts },
    ..RND1
};
