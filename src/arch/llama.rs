//! LLaMA and what shares its graph: Mistral, SmolLM, TriLM, Falcon3; with experts Mixtral.

use super::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, EXPERTS, FFN_BIAS_OPTIONAL, FFN_NORM,
    GATED_FFN, OUTPUT_OR_TIED, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS,
};
use super::{Arch, Checkpoint, RopeRule, SpacePrefix};
use crate::ops::rope::Pairing;

/// `llama`.
pub const LLAMA: Arch = Arch {
    name: "llama",
    models: "LLaMA 1 to 3, Mistral, Mixtral, SmolLM, TriLM, Falcon3",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS],
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
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        FFN_NORM,
        EXPERTS,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
    ],
    rope: RopeRule {
        pairing: Pairing::Adjacent,
        ..Arch::DENSE.rope
    },
    ffn_scales: true,
    checkpoint: Some(&Checkpoint {
        classes: &["LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM"],
        activations: &["silu", "swish"],
        states_sizes: true,
        space_prefix: SpacePrefix::Config,
        ..Checkpoint::USUAL
    }),
    ..Arch::DENSE
};
