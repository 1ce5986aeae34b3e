//! LLaMA and what shares its graph: Mistral, SmolLM, TriLM, Falcon3; with experts Mixtral.

use crate::arch::expert_parts::EXPERTS;
use crate::arch::factors::EXPERT_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_BIAS_OPTIONAL, FFN_NORM, GATED_FFN, Group, OUTPUT_OR_TIED,
    QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT, begun,
};
use crate::arch::rules::{Attention, RopeRule, Temperature, YarnKeys, YarnLog};
use crate::arch::{Arch, Checkpoint, Fixed, HeadDim, Key, KvHeads, Name, SpacePrefix, TokenRule};

/// Groups that both kinds of blocks begin with.
const LLAMA_MIXING: &[Group] = &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM];

/// `llama`.
pub const LLAMA: Arch = Arch {
    name: "llama",
    models: "LLaMA 1 to 3, Mistral, Mixtral, SmolLM, TriLM, Falcon3, Falcon-E",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT],
    block: begun!(LLAMA_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL, FFN_BIAS_OPTIONAL),
    expert_block: begun!(LLAMA_MIXING, EXPERTS, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL),
    rope: RopeRule::ADJACENT,
    scaled: EXPERT_SCALES,
    checkpoints: &[
        &Checkpoint {
            classes: &[
                "LlamaForCausalLM",
                "LLaMAForCausalLM",
                "LlamaModel",
                "IQuestCoderForCausalLM",
                "LlavaForConditionalGeneration",
                "VLlama3ForCausalLM",
                "VoxtralForConditionalGeneration",
            ],
            ..CHECKPOINT
        },
        &Checkpoint {
            classes: &["MistralForCausalLM"],
            head_dim: HeadDim::Implied,
            kv_heads: KvHeads::StatedOr(8),
            context: 131_072,
            ..CHECKPOINT
        },
        &Checkpoint {
            classes: &["MixtralForCausalLM"],
            names: MIXTRAL,
            head_dim: HeadDim::Implied,
            kv_heads: KvHeads::StatedOr(8),
            context: 131_072,
            rope_theta: 1_000_000.0,
            rms_eps: Some(1e-5),
            ..CHECKPOINT
        },
        &Checkpoint {
            classes: &["MobileLLMForCausalLM"],
            // blocks that share weights run several times
            fixed: &[("layer_sharing", Fixed::Unset)],
            ..CHECKPOINT
        },
        &Checkpoint { classes: &["InternLM3ForCausalLM"], token_rules: &[], ..CHECKPOINT },
    ],
    ..Arch::DENSE
};

/// The common part of checkpoints like LLaMA's.
pub const CHECKPOINT: Checkpoint = Checkpoint {
    activations: &["silu", "swish"],
    more_keys: &[Key::VocabSize, Key::RopeDimensions],
    space_prefix: SpacePrefix::Config,
    // Code Llama and the first Granite models are known by their vocabularies
    token_rules: &[
        TokenRule { vocab: Some(32016), eot: Some(32010), add_bos: None },
        TokenRule { vocab: Some(49152), eot: None, add_bos: Some(false) },
    ],
    ..Checkpoint::USUAL
};

/// A matrix per expert under the names of Mixtral.
pub const MIXTRAL: &[Name] = &[
    ("block_sparse_moe.gate.weight", &["ffn_gate_inp.weight"]),
    ("block_sparse_moe.experts.*.w1.weight", &["ffn_gate_exps.weight"]),
    ("block_sparse_moe.experts.*.w2.weight", &["ffn_down_exps.weight"]),
    ("block_sparse_moe.experts.*.w3.weight", &["ffn_up_exps.weight"]),
];

/// `mistral3`: queries grow with the position.
pub const MISTRAL3: Arch = Arch {
    name: "mistral3",
    models: "Ministral 3, Mistral Small 3.1 and later",
    attention: Attention { temperature: Temperature::Key, ..Attention::USUAL },
    rope: RopeRule { yarn: YarnKeys::Band, yarn_log: YarnLog::Divides, ..RopeRule::ADJACENT },
    checkpoints: &[&Checkpoint {
        classes: &["Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"],
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::VocabSize,
            Key::RopeDimensions,
            Key::YarnLog(1.0),
            Key::Fraction(&["rope_parameters.llama_4_scaling_beta"], "attention.temperature_scale"),
        ],
        ..CHECKPOINT
    }],
    ..LLAMA
};
