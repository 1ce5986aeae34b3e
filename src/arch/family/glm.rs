//! ChatGLM 2 to GLM 4: gate and up projection in one matrix, and GLM 4.5 with experts.

use super::qwen::DOWN_GATE_UP;
use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::mtp_parts::MTP;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, FFN_NORM, FFN_NORM_AFTER_ATTN, FFN_POST_NORM, FUSED_FFN, GATED_FFN, Group,
    HEAD_NORMS_OPTIONAL, QKV, QKV_BIAS_OPTIONAL, begun,
};
use crate::arch::rules::{ExpertRule, ExpertWidth, RopeRule, Sections, SharedWidth};
use crate::arch::{Arch, Checkpoint, Fused, HeadDim, Key, Pairing, Rotary, Step, Tokenizer};

const ROPE: RopeRule = RopeRule { pairing: Pairing::Adjacent, ..RopeRule::PARTIAL };

/// `chatglm`.
pub const CHATGLM: Arch = Arch {
    name: "chatglm",
    models: "ChatGLM 2 and 3, GLM 4 9B, GLM Edge",
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, FUSED_FFN, QKV_BIAS_OPTIONAL],
    rope: ROPE,
    checkpoints: &[
        &Checkpoint { classes: &["GlmForCausalLM"], ..CHATGLM_CHECKPOINT },
        &Checkpoint {
            classes: &["ChatGLMModel", "ChatGLMForConditionalGeneration"],
            root: "transformer",
            blocks: "encoder.layers",
            names: &[
                ("embedding.word_embeddings.weight", &["token_embd.weight"]),
                ("encoder.final_layernorm.weight", &["output_norm.weight"]),
                ("output_layer.weight", &["output.weight"]),
                ("self_attention.query_key_value.weight", &["attn_qkv.weight"]),
                ("self_attention.query_key_value.bias", &["attn_qkv.bias"]),
                ("self_attention.dense.weight", &["attn_output.weight"]),
                ("mlp.dense_h_to_4h.weight", &["ffn_up.weight"]),
                ("mlp.dense_4h_to_h.weight", &["ffn_down.weight"]),
            ],
            left_out: &["transformer.rotary_pos_emb."],
            fused: Some(Fused::InOrder),
            ..CHATGLM_CHECKPOINT
        },
    ],
    ..Arch::DENSE
};

/// The common part of the first two checkpoints.
const CHATGLM_CHECKPOINT: Checkpoint = Checkpoint {
    neighbours: true,
    width_names: &["ffn_hidden_size", "intermediate_size"],
    context_names: &["seq_length"],
    context: 0,
    rotary: Rotary::OfHead(0.5),
    keys: &[
        Key::Context,
        Key::Embedding,
        Key::FeedForward,
        Key::Blocks,
        Key::Heads,
        Key::KvHeads,
        Key::FractionOr(&["layernorm_epsilon"], "attention.layer_norm_rms_epsilon", 1e-5),
        Key::FileType,
        Key::RopeDimensions,
        Key::TokenFlag("add_bos_token", false),
        Key::Scaled(&["rope_ratio"], "rope.freq_base", 10000.0, 1.0),
    ],
    tokenizer: Tokenizer::Json,
    special: &[("eos", "<|endoftext|>"), ("eot", "<|user|>"), ("unk", "<|endoftext|>")],
    ..Checkpoint::USUAL
};

/// `glm4`.
pub const GLM4: Arch = Arch {
    name: "glm4",
    models: "GLM 4 0414, GLM 4.1 V (text)",
    block: &[ATTN_NORM, QKV, ATTN_OUT, ATTN_POST_NORM, FFN_NORM, FUSED_FFN, FFN_POST_NORM, QKV_BIAS_OPTIONAL],
    rope: RopeRule { sections: Sections::IfAny, ..ROPE },
    checkpoints: &[
        &Checkpoint { classes: &["Glm4ForCausalLM"], ..GLM4_CHECKPOINT },
        &Checkpoint {
            classes: &["Glm4vForConditionalGeneration"],
            steps: &[
                ("self_attn.q_proj.weight", &[Step::HalvesApart]),
                ("self_attn.k_proj.weight", &[Step::HalvesApart]),
                ("self_attn.q_proj.bias", &[Step::HalvesApart]),
                ("self_attn.k_proj.bias", &[Step::HalvesApart]),
            ],
            ..GLM4_CHECKPOINT
        },
    ],
    ..Arch::DENSE
};

/// The common part of GLM 4's checkpoints.
const GLM4_CHECKPOINT: Checkpoint = Checkpoint {
    names: &[
        ("post_self_attn_layernorm.weight", &["post_attention_norm.weight"]),
        ("post_attention_layernorm.weight", &["ffn_norm.weight"]),
        ("post_mlp_layernorm.weight", &["post_ffw_norm.weight"]),
    ],
    neighbours: true,
    head_dim: HeadDim::Implied,
    rotary: Rotary::OfHead(0.5),
    more_keys: &[Key::RopeDimensions],
    tokenizer: Tokenizer::Json,
    special: &[("eos", "<|endoftext|>"), ("eot", "<|user|>"), ("unk", "<|endoftext|>"), ("bos", "<|endoftext|>")],
    ..Checkpoint::USUAL
};

/// Special tokens of GLM 4.5 and later.
pub const SPECIAL: &[(&str, &str)] =
    &[("bos", "[gMASK]"), ("eot", "<|user|>"), ("unk", "<|endoftext|>"), ("eom", "<|observation|>")];

/// Groups that both kinds of blocks begin with.
const GLM4MOE_MIXING: &[Group] = &[ATTN_NORM, QKV, HEAD_NORMS_OPTIONAL, ATTN_OUT, FFN_NORM_AFTER_ATTN];

/// `glm4moe`.
pub const GLM4MOE: Arch = Arch {
    name: "glm4moe",
    models: "GLM 4.5, 4.6, 4.7",
    block: begun!(GLM4MOE_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL),
    expert_block: begun!(GLM4MOE_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED, QKV_BIAS_OPTIONAL),
    mtp: MTP,
    rope: RopeRule { sections: Sections::IfAny, ..RopeRule::PARTIAL },
    experts: ExpertRule { width: ExpertWidth::KeyOrShare, shared: SharedWidth::Count, ..ExpertRule::KEYED },
    checkpoints: &[&Checkpoint {
        classes: &["Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration"],
        names: DOWN_GATE_UP,
        head_dim: HeadDim::Implied,
        rotary: Rotary::OfHead(0.5),
        more_keys: &[
            Key::RopeDimensions,
            Key::ExpertWidth,
            Key::Whole(&["n_shared_experts"], "expert_shared_count"),
            Key::Whole(&["first_k_dense_replace"], "leading_dense_block_count"),
            Key::Constant("expert_gating_func", 2),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::FlagIf("norm_topk_prob", "expert_weights_norm"),
        ],
        tokenizer: Tokenizer::Json,
        special: SPECIAL,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
