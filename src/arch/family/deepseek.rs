//! DeepSeek 1 and others with experts after some dense layers: dots.llm1, Ling.

use super::qwen::DOWN_GATE_UP;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, EXPERTS_OR_FUSED, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, Group, HEAD_NORMS, OUTPUT_OR_TIED, OUTPUT_REQUIRED, QKV,
    QKV_BIAS_OPTIONAL, begun,
};
use crate::arch::rules::{ExpertLayers, ExpertRule, ExpertWidth, GatingRule, Normalize, Output, RopeRule, SharedWidth};
use crate::arch::{Arch, Checkpoint, Fixed, Fused, Gating, HeadDim, Key, Name, Rotary, Tokenizer};

/// `deepseek`.
pub const DEEPSEEK: Arch = Arch {
    name: "deepseek",
    models: "DeepSeek MoE 16B",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, SHARED, QKV_BIAS_OPTIONAL],
    rope: RopeRule::ADJACENT,
    experts: ExpertRule {
        normalize: Normalize::Never,
        scale: true,
        width: ExpertWidth::Key,
        shared: SharedWidth::Count,
        layers: ExpertLayers::AfterLeading,
        ..ExpertRule::USUAL
    },
    checkpoints: &[&Checkpoint {
        classes: &["DeepseekForCausalLM"],
        names: DOWN_GATE_UP,
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::RopeDimensions,
            Key::Text("rope.scaling.type", "none"),
            LEADING,
            Key::VocabSize,
            Key::ExpertWidth,
            Key::ConstantNumber("expert_weights_scale", 1.0),
            Key::Whole(&["n_shared_experts"], "expert_shared_count"),
        ],
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `deepseek2-ocr`: the language model, whose positions are not stretched.
pub const DEEPSEEK2_OCR: Arch = Arch {
    name: "deepseek2-ocr",
    models: "DeepSeek OCR (text)",
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        FFN_NORM,
        EXPERTS_OR_FUSED,
        CHOICE_BIAS_OPTIONAL,
        SHARED,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule { fixed: true, ..RopeRule::HALVES },
    experts: ExpertRule {
        gating: GatingRule::Key(Some(Gating::SoftMax)),
        normalize: Normalize::Key,
        ..DEEPSEEK.experts
    },
    output: Output { factored: false, ..Arch::DENSE.output },
    checkpoints: &[&Checkpoint {
        classes: &["DeepseekOCRForCausalLM"],
        names: DOWN_GATE_UP,
        head_dim: HeadDim::Implied,
        // those of latent attention, which these models lack
        fixed: &[
            ("use_mla", Fixed::Unset),
            ("kv_lora_rank", Fixed::Unset),
            ("q_lora_rank", Fixed::Unset),
            ("rope_theta", Fixed::Number(10_000.0)),
        ],
        rope_theta: 0.0,
        left_out: &["model.sam_model.", "model.qwen2_model."],
        first_keys: &[Key::Template("{% for m in messages %}{{m['content']}}{% endfor %}")],
        more_keys: &[
            Key::WholeOr(&["first_k_dense_replace"], "leading_dense_block_count", 0),
            Key::VocabSize,
            Key::Whole(&["moe_intermediate_size", "intermediate_size"], "expert_feed_forward_length"),
            Key::WholeOr(&["n_shared_experts"], "expert_shared_count", 0),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::FlagIfTrue("norm_topk_prob", "expert_weights_norm"),
            Key::WholeOr(&["qk_rope_head_dim"], "rope.dimension_count", 0),
        ],
        tokenizer: Tokenizer::Json,
        tied_left_out: true,
        ..Checkpoint::USUAL
    }],
    ..DEEPSEEK
};

const LEADING: Key = Key::Whole(&["first_k_dense_replace"], "leading_dense_block_count");

/// `bailingmoe`.
pub const BAILINGMOE: Arch = Arch {
    name: "bailingmoe",
    models: "Ling Lite, Ling Plus",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[],
    experts: ExpertRule { normalize: Normalize::Key, layers: ExpertLayers::All, ..DEEPSEEK.experts },
    checkpoints: &[&Checkpoint {
        classes: &["BailingMoeForCausalLM"],
        names: DOWN_GATE_UP,
        more_names: LING,
        head_dim: HeadDim::Implied,
        fixed: &[("norm_head", Fixed::Unset)],
        more_keys: &[
            Key::RopeDimensions,
            LEADING,
            Key::VocabSize,
            Key::ExpertWidth,
            Key::ConstantNumber("expert_weights_scale", 1.0),
            Key::Whole(&["num_shared_experts"], "expert_shared_count"),
            Key::FlagIf("norm_topk_prob", "expert_weights_norm"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..DEEPSEEK
};

const LING: &[Name] = &[
    ("word_embeddings.weight", &["token_embd.weight"]),
    ("attention.query_key_value.weight", &["attn_q.weight", "attn_k.weight", "attn_v.weight"]),
    ("attention.dense.weight", &["attn_output.weight"]),
    ("attention.query_layernorm.weight", &["attn_q_norm.weight"]),
    ("attention.key_layernorm.weight", &["attn_k_norm.weight"]),
];

/// Groups that both kinds of blocks begin with.
const DOTS1_MIXING: &[Group] = &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM];

/// `dots1`.
pub const DOTS1: Arch = Arch {
    name: "dots1",
    models: "dots.llm1",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: begun!(DOTS1_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL),
    expert_block: begun!(DOTS1_MIXING, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED, QKV_BIAS_OPTIONAL),
    experts: ExpertRule { gating: GatingRule::Key(None), shared: SharedWidth::Count, ..ExpertRule::KEYED },
    checkpoints: &[&Checkpoint {
        classes: &["Dots1ForCausalLM"],
        names: DOWN_GATE_UP,
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::ExpertWidth,
            LEADING,
            Key::Whole(&["n_shared_experts"], "expert_shared_count"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::FlagIf("norm_topk_prob", "expert_weights_norm"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `bailingmoe2`.
pub const BAILINGMOE2: Arch = Arch {
    name: "bailingmoe2",
    models: "Ling 2, Ring 2",
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN],
    expert_block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED],
    rope: RopeRule::PARTIAL,
    experts: ExpertRule { gating: GatingRule::Key(None), shared: SharedWidth::Times, ..ExpertRule::KEYED },
    checkpoints: &[&Checkpoint {
        classes: &["BailingMoeV2ForCausalLM"],
        names: DOWN_GATE_UP,
        more_names: &[LING[0], ("attention.query_key_value.weight", &["attn_qkv.weight"]), LING[2], LING[3], LING[4]],
        fused: Some(Fused::InOrder),
        head_dim: HeadDim::Implied,
        rotary: Rotary::OfHead(0.5),
        more_keys: &[
            Key::RopeDimensions,
            LEADING,
            Key::VocabSize,
            Key::ExpertWidth,
            Key::Product(&["moe_intermediate_size"], &["num_shared_experts"], "expert_shared_feed_forward_length"),
            Key::Whole(&["moe_shared_expert_intermediate_size"], "expert_shared_feed_forward_length"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::Whole(&["num_shared_experts"], "expert_shared_count"),
            Key::FlagIf("norm_topk_prob", "expert_weights_norm"),
            Key::NoFurther("num_nextn_predict_layers"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..DOTS1
};
