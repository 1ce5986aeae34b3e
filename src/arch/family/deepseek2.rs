//! Latent attention: DeepSeek 2 and 3, Mistral Large 3 and 4, MiniCPM 3, PLM.

use super::deepseek::DEEPSEEK;
use super::glm::SPECIAL as GLM_SPECIAL;
use super::qwen::DOWN_GATE_UP;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS_OR_FUSED, SHARED};
use crate::arch::factors::ATTN_OUT_SCALE;
use crate::arch::latent_parts::{
    EXPANSION, EXPANSION_EITHER, LATENT, LATENT_OUT, QUERIES, RANKED_QUERIES, RANKED_QUERIES_OPTIONAL,
};
use crate::arch::mtp_parts::MTP;
use crate::arch::parts::{
    ATTN_NORM, ENDS, FFN_NORM, GATED_FFN, Group, OUTPUT_OR_TIED, PLAIN_FFN, ROPE_FACTORS_BY_CONTEXT, begun,
};
use crate::arch::rules::{
    Attention, EmbeddingScale, ExpertRule, FeedForward, GatingRule, Normalize, Output, ResidualScale, RopeRule,
    ScoreScale, Temperature, YarnLog,
};
use crate::arch::{Activation, Arch, Checkpoint, HeadDim, Key, KvHeads, RopeScaling, Rotary, Step, Tokenizer};

/// Tokens of GLM 4.7 Flash's vocabulary, whose first files do not say how experts are weighed.
const GLM_TOKENS: u32 = 154_880;

/// Groups that both kinds of blocks begin with.
const DEEPSEEK2_MIXING: &[Group] =
    &[ATTN_NORM, QUERIES, RANKED_QUERIES_OPTIONAL, LATENT, EXPANSION_EITHER, LATENT_OUT, FFN_NORM];

/// `deepseek2`.
pub const DEEPSEEK2: Arch = Arch {
    name: "deepseek2",
    models: "DeepSeek 2, 2.5, 3, R1, V2 Lite, Kimi K2, GLM 4.7 Flash, GigaChat 3",
    block: begun!(DEEPSEEK2_MIXING, GATED_FFN),
    expert_block: begun!(DEEPSEEK2_MIXING, EXPERTS_OR_FUSED, CHOICE_BIAS_OPTIONAL, SHARED),
    mtp: MTP,
    attention: Attention {
        latent: true,
        scale: ScoreScale::Stretched,
        temperature: Temperature::KeyAndLength,
        ..Attention::USUAL
    },
    rope: RopeRule { partial: true, yarn_log: YarnLog::TenfoldBoth, ..RopeRule::ADJACENT },
    experts: ExpertRule {
        gating: GatingRule::KeyOrVocabulary(GLM_TOKENS),
        normalize: Normalize::Key,
        ..DEEPSEEK.experts
    },
    output: Output { factored: false, ..Arch::DENSE.output },
    scaled: ATTN_OUT_SCALE,
    checkpoints: &[
        &Checkpoint {
            classes: &["DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"],
            // the key stands where classes of this family have it, and takes another number later
            head_dim: HeadDim::Fixed(64),
            ..CHECKPOINT
        },
        &Checkpoint {
            classes: &[
                "KimiVLForConditionalGeneration",
                "KimiK25ForConditionalGeneration",
                "YoutuForCausalLM",
                "YoutuVLForConditionalGeneration",
            ],
            ..CHECKPOINT
        },
        &Checkpoint { classes: &["Glm4MoeLiteForCausalLM"], special: GLM_SPECIAL, ..CHECKPOINT },
    ],
    ..Arch::DENSE
};

/// The common part of checkpoints with latent attention that is absorbed by the queries.
pub const CHECKPOINT: Checkpoint = Checkpoint {
    names: DOWN_GATE_UP,
    more_names: &[("self_attn.kv_b_proj.weight", &["attn_k_b.weight", "attn_v_b.weight"])],
    steps: &[("self_attn.kv_b_proj.weight", &[Step::KeysAndValues])],
    // the latent vector is one key for all heads
    kv_heads: KvHeads::One,
    head_dim: HeadDim::Implied,
    rotary: Rotary::Stated("qk_rope_head_dim"),
    more_keys: &[
        Key::WholeOr(&["first_k_dense_replace"], "leading_dense_block_count", 0),
        Key::VocabSize,
        Key::Whole(&["q_lora_rank"], "attention.q_lora_rank"),
        Key::WholeOr(&["kv_lora_rank"], "attention.kv_lora_rank", 512),
        Key::Sum(&["kv_lora_rank"], &["qk_rope_head_dim"], "attention.key_length"),
        Key::WholeOr(&["kv_lora_rank"], "attention.value_length", 512),
        Key::Sum(&["qk_nope_head_dim"], &["qk_rope_head_dim"], "attention.key_length_mla"),
        Key::Whole(&["v_head_dim"], "attention.value_length_mla"),
        Key::Whole(&["moe_intermediate_size", "intermediate_size"], "expert_feed_forward_length"),
        Key::WholeOr(&["n_shared_experts"], "expert_shared_count", 0),
        Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
        Key::FlagIfTrue("norm_topk_prob", "expert_weights_norm"),
        Key::RopeDimensions,
        Key::YarnLog(0.1),
    ],
    tokenizer: Tokenizer::Json,
    tied_left_out: true,
    dense_too: true,
    ..Checkpoint::USUAL
};

/// `mistral4`.
pub const MISTRAL4: Arch = Arch {
    name: "mistral4",
    models: "Mistral Large 3, Mistral Small 4",
    rope: RopeRule { yarn_log: YarnLog::TenfoldDivides, ..DEEPSEEK2.rope },
    checkpoints: &[&Checkpoint {
        classes: &["Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"],
        told_by: Some("kv_lora_rank"),
        names: &[
            ("mlp.gate.weight", &["ffn_gate_inp.weight"]),
            ("mlp.experts.gate_up_proj", &["ffn_gate_up_exps.weight"]),
            ("mlp.experts.down_proj", &["ffn_down_exps.weight"]),
        ],
        ..CHECKPOINT
    }],
    ..DEEPSEEK2
};

/// `minicpm3`.
pub const MINICPM3: Arch = Arch {
    name: "minicpm3",
    models: "MiniCPM 3",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS_BY_CONTEXT],
    block: &[ATTN_NORM, RANKED_QUERIES, LATENT, EXPANSION, LATENT_OUT, FFN_NORM, GATED_FFN],
    attention: Attention { latent: true, ..Attention::USUAL },
    rope: RopeRule::PARTIAL,
    embedding_scale: EmbeddingScale::Fixed(12.0),
    residual_scale: ResidualScale::Depth(1.4),
    output: Output { input_width: Some(256.0), ..Arch::DENSE.output },
    scaled: ATTN_OUT_SCALE,
    checkpoints: &[&Checkpoint {
        classes: &["MiniCPM3ForCausalLM"],
        tied: true,
        rotary: Rotary::Stated("qk_rope_head_dim"),
        rope_scaling: RopeScaling::Long,
        keys: &[
            Key::FileType,
            Key::Context,
            Key::Embedding,
            Key::Blocks,
            Key::FeedForward,
            Key::Heads,
            Key::KvHeads,
            Key::RmsEpsilon,
            Key::VocabSize,
            Key::Whole(&["q_lora_rank"], "attention.q_lora_rank"),
            Key::Whole(&["kv_lora_rank"], "attention.kv_lora_rank"),
            Key::Sum(&["qk_nope_head_dim"], &["qk_rope_head_dim"], "attention.key_length"),
            Key::RopeDimensions,
        ],
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `plm`.
pub const PLM: Arch = Arch {
    name: "plm",
    models: "PLM 1.8B",
    ends: &[ENDS],
    block: &[ATTN_NORM, QUERIES, LATENT, EXPANSION, LATENT_OUT, FFN_NORM, PLAIN_FFN],
    attention: MINICPM3.attention,
    rope: RopeRule { partial: true, ..RopeRule::ADJACENT },
    feed_forward: FeedForward { activation: Activation::SquaredRelu, ..Arch::DENSE.feed_forward },
    scaled: ATTN_OUT_SCALE,
    checkpoints: &[&Checkpoint {
        classes: &["PLMForCausalLM"],
        activations: &["relu2"],
        head_dim: HeadDim::Implied,
        rotary: Rotary::Stated("qk_rope_head_dim"),
        more_keys: &[
            Key::VocabSize,
            Key::Whole(&["kv_lora_rank"], "attention.kv_lora_rank"),
            Key::Sum(&["qk_nope_head_dim"], &["qk_rope_head_dim"], "attention.key_length"),
            Key::Whole(&["v_head_dim"], "attention.value_length"),
            Key::RopeDimensions,
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
