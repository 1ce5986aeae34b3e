//! Mixtures of many parameters: Grok (a dense network beside the experts, bounded scores), DBRX (layer norms), Arctic
//! (the experts see the block's input).

use super::llama::MIXTRAL;
use crate::arch::expert_parts::{EXPERT_NORM, EXPERTS};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_NORM, ENDS, FFN_NORM, FFN_NORM_ATTN_OUT, GATED_FFN_OPTIONAL, LAYER_OUT_NORM,
    OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, SQUARE_FFN,
};
use crate::arch::rules::{
    Attention, EmbeddingScale, ExpertRule, ExpertWidth, FeedForward, LogitCap, LogitScale, NormKind, Output, RopeRule,
    ScoreCap, ScoreScale, YarnKeys,
};
use crate::arch::{Activation, Arch, Checkpoint, Fused, HeadDim, Key, Step, Tokenizer};

/// `grok`.
pub const GROK: Arch = Arch {
    name: "grok",
    models: "Grok 1, Grok 2",
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        ATTN_OUT_NORM,
        FFN_NORM,
        EXPERTS,
        GATED_FFN_OPTIONAL,
        LAYER_OUT_NORM,
        QKV_BIAS_OPTIONAL,
    ],
    embedding_scale: EmbeddingScale::Key(78.383_675),
    attention: Attention { scale: ScoreScale::One, softcap: ScoreCap::Scaled(30.0, 0.088_388_346), ..Attention::USUAL },
    rope: RopeRule { yarn: YarnKeys::All, beta_fast: 8.0, ..RopeRule::HALVES },
    feed_forward: FeedForward { activation: Activation::Gelu, ..Arch::DENSE.feed_forward },
    experts: ExpertRule {
        width: ExpertWidth::KeyOrFull,
        beside: Some(std::f32::consts::FRAC_1_SQRT_2),
        ..ExpertRule::USUAL
    },
    output: Output {
        input_width: None,
        scale: LogitScale::MultiplyOr(0.577_350_26),
        softcap: LogitCap::KeyOr(0.0),
        silent: None,
        factored: true,
    },
    checkpoints: &[&Checkpoint {
        classes: &["GrokForCausalLM", "Grok1ForCausalLM"],
        activations: &["gelu"],
        names: MIXTRAL,
        more_names: &[
            ("pre_attn_norm.weight", &["attn_norm.weight"]),
            ("post_attn_norm.weight", &["attn_output_norm.weight"]),
            ("pre_moe_norm.weight", &["ffn_norm.weight"]),
            ("post_moe_norm.weight", &["post_ffw_norm.weight"]),
            ("mlp.gate_proj.weight", &["ffn_gate.weight"]),
        ],
        more_keys: &[
            Key::FractionOr(&["attn_logit_softcapping"], "attn_logit_softcapping", 30.0),
            Key::FractionOr(&["router_logit_softcapping"], "router_logit_softcapping", 30.0),
            Key::Fraction(&["final_logit_softcapping"], "final_logit_softcapping"),
            Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length"),
            Key::Whole(&["attn_temperature_len"], "attention.temperature_length"),
            Key::Fraction(&["attn_output_multiplier"], "attention.output_scale"),
            Key::Fraction(&["embedding_multiplier_scale"], "embedding_scale"),
            Key::Fraction(&["output_multiplier_scale"], "logit_scale"),
        ],
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `dbrx`.
pub const DBRX: Arch = Arch {
    name: "dbrx",
    models: "DBRX",
    ends: &[ENDS, OUTPUT_REQUIRED],
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM_ATTN_OUT, EXPERTS],
    norm: NormKind::Layer,
    attention: Attention { clamp: true, ..Attention::USUAL },
    checkpoints: &[&Checkpoint {
        classes: &["DbrxForCausalLM"],
        root: "transformer",
        blocks: "blocks",
        names: &[
            ("wte.weight", &["token_embd.weight"]),
            ("norm_f.weight", &["output_norm.weight"]),
            ("norm_attn_norm.norm_1.weight", &["attn_norm.weight"]),
            ("norm_attn_norm.norm_2.weight", &["attn_output_norm.weight"]),
            ("norm_attn_norm.attn.Wqkv.weight", &["attn_qkv.weight"]),
            ("norm_attn_norm.attn.out_proj.weight", &["attn_output.weight"]),
            ("ffn.router.layer.weight", &["ffn_gate_inp.weight"]),
            ("ffn.experts.mlp.w1", &["ffn_gate_exps.weight"]),
            ("ffn.experts.mlp.v1", &["ffn_up_exps.weight"]),
            ("ffn.experts.mlp.w2", &["ffn_down_exps.weight"]),
        ],
        steps: &[
            ("ffn.experts.mlp.w1", &[Step::Reshaped]),
            ("ffn.experts.mlp.v1", &[Step::Reshaped]),
            ("ffn.experts.mlp.w2", &[Step::Reshaped, Step::Transposed]),
            ("ffn.router.layer.weight", &[Step::AsMatrix]),
        ],
        fused: Some(Fused::InOrder),
        width_names: &["ffn_config.ffn_hidden_size"],
        context_names: &["max_seq_len"],
        rope_names: &["attn_config.rope_theta"],
        rms_eps: None,
        layer_eps: Some(1e-5),
        keys: &[
            Key::Blocks,
            Key::Context,
            Key::Embedding,
            Key::FeedForward,
            Key::Heads,
            Key::KvHeads,
            Key::RopeBase,
            Key::Fraction(&["attn_config.clip_qkv"], "attention.clamp_kqv"),
            Key::Whole(&["ffn_config.moe_num_experts"], "expert_count"),
            Key::Whole(&["ffn_config.moe_top_k"], "expert_used_count"),
            Key::LayerEpsilon,
            Key::FileType,
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `arctic`.
pub const ARCTIC: Arch = Arch {
    name: "arctic",
    models: "Snowflake Arctic",
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, SQUARE_FFN, EXPERT_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    rope: RopeRule::ADJACENT,
    checkpoints: &[&Checkpoint {
        classes: &["ArcticForCausalLM"],
        names: MIXTRAL,
        more_names: &[
            ("residual_layernorm.weight", &["ffn_norm.weight"]),
            ("post_attention_layernorm.weight", &["ffn_norm_exps.weight"]),
            ("residual_mlp.w1.weight", &["ffn_gate.weight"]),
            ("residual_mlp.w2.weight", &["ffn_down.weight"]),
            ("residual_mlp.w3.weight", &["ffn_up.weight"]),
        ],
        head_dim: HeadDim::Implied,
        more_keys: &[Key::VocabSize, Key::RopeDimensions],
        tokenizer: Tokenizer::Arctic,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
