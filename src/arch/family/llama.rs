//! LLaMA and what shares its graph: Mistral, SmolLM, TriLM, Falcon3; with experts Mixtral.

use crate::arch::expert_parts::EXPERTS;
use crate::arch::factors::EXPERT_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_BIAS_OPTIONAL, FFN_NORM, GATED_FFN,
    OUTPUT_OR_TIED, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT,
};
use crate::arch::rules::{Attention, RopeRule, Temperature, YarnLog};
use crate::arch::{Arch, Checkpoint, SpacePrefix};

/// `llama`.
pub const LLAMA: Arch = Arch {
    name: "llama",
    models: "LLaMA 1 to 3, Mistral, Mixtral, SmolLM, TriLM, Falcon3",
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
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        FFN_NORM,
        EXPERTS,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
    ],
    rope: RopeRule::ADJACENT,
    scaled: EXPERT_SCALES,
    gradients: true,
    checkpoint: Some(&Checkpoint {
        classes: &["LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM"],
        activations: &["silu", "swish"],
        states_sizes: true,
        space_prefix: SpacePrefix::Config,
        ..Checkpoint::USUAL
    }),
    ..Arch::DENSE
};

/// `mistral3`: queries grow with the position.
pub const MISTRAL3: Arch = Arch {
    name: "mistral3",
    models: "Ministral 3, Mistral Small 3.1 and later",
    attention: Attention {
        temperature: Temperature::Key,
        ..Attention::USUAL
    },
    rope: RopeRule {
        yarn_log: YarnLog::Divides,
        ..RopeRule::ADJACENT
    },
    gradients: false,
    checkpoint: None,
    ..LLAMA
};
