//! A gate on what heads give: AFMoE, Laguna, Muse Glimmer, Spark 2.5.

use super::llama;
use super::qwen::GATE_UP_DOWN;
use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_GATE, ATTN_HEAD_GATE, ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, ENDS, FFN_NORM, FFN_POST_NORM, GATED_FFN, Group,
    HEAD_NORMS, OUTPUT_REQUIRED, PLAIN_TOKEN_NORM, QKV, QKV_BIAS_OPTIONAL, begun,
};
use crate::arch::rules::{
    Attention, EmbeddingScale, ExpertRule, FeedForward, LogitCap, LogitScale, Output, RopeLayers, RopeRule,
    SharedWidth, WindowBase, WindowRope, WindowRule, WindowScaling,
};
use crate::arch::{
    Activation, Arch, Checkpoint, Fixed, Fused, HeadDim, HeadGate, Key, Rotary, Step, TokenKey, Tokenizer,
};

/// Groups that both kinds of blocks begin with.
const AFMOE_MIXING: &[Group] = &[ATTN_NORM, QKV, ATTN_GATE, HEAD_NORMS, ATTN_OUT, ATTN_POST_NORM, FFN_NORM];

/// `afmoe`.
pub const AFMOE: Arch = Arch {
    name: "afmoe",
    models: "Trinity (Arcee AFMoE)",
    block: begun!(AFMOE_MIXING, GATED_FFN, FFN_POST_NORM, QKV_BIAS_OPTIONAL),
    expert_block: begun!(AFMOE_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED, FFN_POST_NORM, QKV_BIAS_OPTIONAL),
    embedding_scale: EmbeddingScale::RootOfWidth,
    rope: RopeRule { layers: RopeLayers::ButLastOf(4), ..RopeRule::PARTIAL },
    window: Some(WindowRule { rope: WindowRope::KEYED, ..WindowRule::every(4) }),
    experts: ExpertRule { shared: SharedWidth::Count, ..ExpertRule::KEYED },
    checkpoints: &[&Checkpoint {
        classes: &["AfmoeForCausalLM"],
        names: GATE_UP_DOWN,
        more_names: &[
            ("mlp.router.gate.weight", &["ffn_gate_inp.weight"]),
            ("post_attention_layernorm.weight", &["post_attention_norm.weight"]),
            ("pre_mlp_layernorm.weight", &["ffn_norm.weight"]),
        ],
        neighbours: true,
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::VocabSize,
            Key::RopeDimensions,
            Key::Whole(&["num_shared_experts"], "expert_shared_count"),
            Key::ExpertWidth,
            Key::Whole(&["num_dense_layers"], "leading_dense_block_count"),
            Key::FlagIf("route_norm", "expert_weights_norm"),
            Key::Fraction(&["route_scale"], "expert_weights_scale"),
            Key::Whole(&["sliding_window"], "attention.sliding_window"),
        ],
        ..llama::CHECKPOINT
    }],
    ..Arch::DENSE
};

/// Groups that both kinds of blocks begin with.
const LAGUNA_MIXING: &[Group] = &[ATTN_NORM, QKV, ATTN_HEAD_GATE, HEAD_NORMS, ATTN_OUT, FFN_NORM];

/// `laguna`, with a gate per head, whose number may differ from layer to layer.
pub const LAGUNA: Arch = Arch {
    name: "laguna",
    models: "Laguna",
    block: begun!(LAGUNA_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL),
    expert_block: begun!(LAGUNA_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED, QKV_BIAS_OPTIONAL),
    attention: Attention { gate: HeadGate::Softplus, heads_by_layer: true, ..Attention::USUAL },
    embedding_scale: EmbeddingScale::One,
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule {
        global_first: true,
        rope: WindowRope { base: WindowBase::Key, scaling: WindowScaling::None, own_dimensions: true },
        ..WindowRule::every(4)
    }),
    experts: ExpertRule { shared: SharedWidth::KeyOrCountOrOne, ..ExpertRule::KEYED },
    output: Output { factored: false, ..AFMOE.output },
    checkpoints: &[&Checkpoint {
        classes: &["LagunaForCausalLM"],
        names: GATE_UP_DOWN,
        more_names: &[("mlp.experts.e_score_correction_bias", &["exp_probs_b.bias"])],
        head_dim: HeadDim::Implied,
        rotary: Rotary::OfHead(1.0),
        more_keys: &[
            Key::VocabSize,
            Key::NumbersOr("num_attention_heads_per_layer", "attention.head_count", "num_attention_heads"),
            Key::Whole(&["sliding_window"], "attention.sliding_window"),
            Key::ExpertWidth,
            Key::SharedWidth,
            Key::ConstantFlag("expert_weights_norm", true),
            Key::Fraction(&["moe_routed_scaling_factor"], "expert_weights_scale"),
            Key::Constant("expert_gating_func", 2),
            Key::LeadingDense,
            Key::RopeDimensions,
            Key::TurnedPart("rope_parameters.sliding_attention.partial_rotary_factor", "rope.dimension_count_swa"),
        ],
        tokenizer: Tokenizer::Json,
        token_keys: &[TokenKey::TemplateFile, TokenKey::OtherEnd],
        ..Checkpoint::USUAL
    }],
    ..AFMOE
};

/// `muse-glimmer`: the embeddings are normed too.
pub const MUSE_GLIMMER: Arch = Arch {
    name: "muse-glimmer",
    models: "Muse Glimmer",
    ends: &[ENDS, PLAIN_TOKEN_NORM, OUTPUT_REQUIRED],
    expert_block: &[],
    post_norm_eps: Some(1e-8),
    embedding_scale: EmbeddingScale::One,
    rope: RopeRule { layers: RopeLayers::Windowed, ..RopeRule::ADJACENT },
    window: Some(WindowRule { rope: WindowRope { base: WindowBase::Key, ..WindowRope::OWN }, ..WindowRule::needed(4) }),
    output: Output {
        input_width: None,
        scale: LogitScale::Always,
        softcap: LogitCap::KeyOr(30.0),
        silent: None,
        factored: true,
    },
    checkpoints: &[&Checkpoint {
        classes: &["MuseGlimmerForConditionalGeneration"],
        norms_plus_one: true,
        head_dim: HeadDim::Implied,
        names: &[
            ("post_attention_layernorm.weight", &["post_attention_norm.weight"]),
            ("pre_feedforward_layernorm.weight", &["ffn_norm.weight"]),
            ("post_feedforward_layernorm.weight", &["post_ffw_norm.weight"]),
            ("self_attn.gate_proj.weight", &["attn_gate.weight"]),
        ],
        steps: &[("norm.weight", &[Step::AsItIs])],
        // norms without gains, whose factor stands in the first
        gains: &[
            ("self_attn.q_proj.weight", "attn_q_norm.weight", Some("qk_scale_factor")),
            ("self_attn.q_proj.weight", "attn_k_norm.weight", None),
        ],
        more_keys: &[
            Key::Fraction(&["final_logit_softcapping"], "final_logit_softcapping"),
            Key::Fraction(&["output_multiplier"], "logit_scale"),
            Key::Whole(&["sliding_window"], "attention.sliding_window"),
            Key::WindowLayers,
        ],
        tokenizer: Tokenizer::Json,
        token_keys: &[TokenKey::Added("<|eot|>", "eot_token_id")],
        ..Checkpoint::USUAL
    }],
    ..AFMOE
};

/// `spark2_5`, with a gate per head, whose number may differ from layer to layer.
pub const SPARK2_5: Arch = Arch {
    name: "spark2_5",
    models: "Spark 2.5",
    block: &[ATTN_NORM, QKV, ATTN_HEAD_GATE, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    attention: Attention { heads_by_layer: true, ..Attention::USUAL },
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule {
        rope: WindowRope { own_dimensions: true, ..WindowRope::KEYED },
        ..WindowRule::needed(1)
    }),
    feed_forward: FeedForward { activation: Activation::Gelu, ..Arch::DENSE.feed_forward },
    output: Output { factored: false, ..Arch::DENSE.output },
    checkpoints: &[&Checkpoint {
        classes: &["Spark2_5ForCausalLM"],
        activations: &["gelu"],
        names: &[("self_attn.q_k_v_proj.weight", &["attn_qkv.weight"])],
        fused: Some(Fused::InOrder),
        head_dim: HeadDim::Implied,
        fixed: &[("gate_attn_act_mode", Fixed::Text("sigmoid")), ("headwise_attn_output_gate", Fixed::True)],
        more_keys: &[
            Key::VocabSize,
            Key::Window(4096),
            Key::WindowLayers,
            Key::TurnedPart("rope_parameters.full_attention.partial_rotary_factor", "rope.dimension_count"),
            Key::TurnedPart("rope_parameters.sliding_attention.partial_rotary_factor", "rope.dimension_count_swa"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
