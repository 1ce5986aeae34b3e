//! Gemma: embeddings times the root of their width, GeGLU. From Gemma 2 on norms before and after both sublayers of a
//! block and windows; Gemma 2 bounds scores and logits; Gemma 3 has an RMS norm on every query and key head, and window
//! layers with their own RoPE base. Gemma 3n predicts three of four residual streams, has a path of low rank beside
//! attention and a vector of every token for each block, and later blocks attend to the keys of earlier ones. Gemma 4
//! has one residual stream again, a vector for each block in its small models, and heads whose size and number differ
//! between layers with a window and those without; in its mixture a dense network stands beside the experts.
//!
//! Norm weights are used as stored: the converter has already added the 1 of Gemma's formula.

use crate::arch::expert_parts::{EXPERTS_APART, EXPERTS_OR_FUSED};
use crate::arch::factors::EXPERT_SCALES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, BLOCK_SCALE, ENDS, FFN_NORM, FFN_POST_NORM, GATED_FFN, Group, HEAD_NORMS,
    OUTPUT_OR_TIED, PLAIN_VALUE_NORM, PRE_FFN_NORM, QKV, QKV_BIAS_OPTIONAL, QKV_OR_QK, ROPE_FACTORS_OF_HEADS, begun,
    beside,
};
use crate::arch::rules::{
    Attention, DraftState, EmbeddingScale, ExpertLayers, ExpertRule, ExpertWidth, FeedForward, LayerInputs, LogitCap,
    Output, RopeRule, ScoreCap, ScoreScale, SharedKeys, Streams, WindowRope, WindowRule, WindowSize,
};
use crate::arch::stream_parts::{LAUREL, LAYER_INPUT, LAYER_INPUTS, PREDICTED_ENDS, PREDICTIONS};
use crate::arch::{
    Activation, Arch, Checkpoint, Fixed, HeadDim, Key, KvHeads, Name, Role, RopeScaling, Rotary, SpacePrefix, Step,
    TokenKey, TokenRule, Tokenizer, Width,
};

/// `gemma`.
pub const GEMMA: Arch = Arch {
    name: "gemma",
    models: "Gemma 1, CodeGemma",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule::PARTIAL,
    attention: Attention { scale: ScoreScale::OnQueries(None), ..Attention::USUAL },
    feed_forward: FeedForward { activation: Activation::Gelu, ..Arch::DENSE.feed_forward },
    embedding_scale: EmbeddingScale::RootOfWidth,
    checkpoints: &[&Checkpoint {
        classes: &["GemmaForCausalLM"],
        activations: &["gelu_pytorch_tanh", "gelu"],
        kv_heads: KvHeads::StatedOr(16),
        keys: KEYS,
        // meant for CodeGemma
        token_rules: &[TokenRule { vocab: None, eot: Some(107), add_bos: None }],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};

/// The common part of the first two checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint {
    activations: &["gelu_pytorch_tanh"],
    norms_plus_one: true,
    tied: true,
    head_dim: HeadDim::Fixed(256),
    context: 8192,
    rope_scaling: RopeScaling::None,
    space_prefix: SpacePrefix::Never,
    ..Checkpoint::USUAL
};

const KEYS: &[Key] = &[
    Key::Context,
    Key::Embedding,
    Key::Blocks,
    Key::FeedForward,
    Key::Heads,
    Key::KvHeads,
    Key::RmsEpsilon,
    Key::HeadSizes,
    Key::FileType,
];

/// `gemma2`.
pub const GEMMA2: Arch = Arch {
    name: "gemma2",
    models: "Gemma 2",
    block: &[ATTN_NORM, QKV, ATTN_OUT, ATTN_POST_NORM, PRE_FFN_NORM, GATED_FFN, FFN_POST_NORM, QKV_BIAS_OPTIONAL],
    window: Some(WindowRule { size: WindowSize::KeyOr(4096), rope: WindowRope::KEYED, ..WindowRule::every(2) }),
    attention: Attention { scale: ScoreScale::OnQueries(Some(46)), softcap: ScoreCap::Key(50.0), ..Attention::USUAL },
    output: Output { softcap: LogitCap::KeyOr(30.0), ..Arch::DENSE.output },
    checkpoints: &[&Checkpoint {
        classes: &["Gemma2ForCausalLM"],
        kv_heads: KvHeads::StatedOr(4),
        keys: KEYS,
        more_keys: &[
            Key::Number("attn_logit_softcapping", "attn_logit_softcapping", 50.0),
            Key::Number("final_logit_softcapping", "final_logit_softcapping", 30.0),
            Key::Window(4096),
        ],
        ..CHECKPOINT
    }],
    ..GEMMA
};

/// `gemma3`.
pub const GEMMA3: Arch = Arch {
    name: "gemma3",
    models: "Gemma 3 (text)",
    ends: Arch::DENSE.ends,
    block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        ATTN_POST_NORM,
        PRE_FFN_NORM,
        GATED_FFN,
        FFN_POST_NORM,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule { rope: WindowRope::OWN, ..WindowRule::every(6) }),
    attention: Attention { scale: ScoreScale::OnQueries(Some(62)), ..Attention::USUAL },
    output: Output { softcap: LogitCap::KeyOr(0.0), ..Arch::DENSE.output },
    // layers of embedding models
    ignored: &["dense_2.weight", "dense_3.weight"],
    checkpoints: &[&CHECKPOINT_3],
    ..GEMMA
};

/// Checkpoints of Gemma 3.
pub(super) const CHECKPOINT_3: Checkpoint = Checkpoint {
    classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    activations: &["gelu_pytorch_tanh"],
    norms_plus_one: true,
    padded_embedding: true,
    tied: true,
    vocab: Some(262_208),
    heads: Some(8),
    kv_heads: KvHeads::StatedOr(4),
    head_dim: HeadDim::Fixed(256),
    context: 131_072,
    rope_theta: 1_000_000.0,
    fixed: &[("attn_logit_softcapping", Fixed::Unset)],
    more_keys: &[Key::Number("final_logit_softcapping", "final_logit_softcapping", 0.0), Key::Window(4096)],
    space_prefix: SpacePrefix::Never,
    ..Checkpoint::USUAL
};

/// `gemma3n`.
pub const GEMMA3N: Arch = Arch {
    name: "gemma3n",
    models: "Gemma 3n E2B, E4B (text)",
    ends: &[ENDS, OUTPUT_OR_TIED, PREDICTED_ENDS, LAYER_INPUTS],
    block: &[
        PREDICTIONS,
        ATTN_NORM,
        LAUREL,
        QKV,
        HEAD_NORMS,
        PLAIN_VALUE_NORM,
        ATTN_OUT,
        ATTN_POST_NORM,
        PRE_FFN_NORM,
        GATED_FFN,
        FFN_POST_NORM,
        LAYER_INPUT,
    ],
    streams: Streams::Predicted,
    layer_inputs: LayerInputs::Fixed(256),
    window: Some(WindowRule { rope: WindowRope::OWN, ..WindowRule::needed(5) }),
    attention: Attention { scale: ScoreScale::One, shared_keys: SharedKeys::From(20), ..Attention::USUAL },
    feed_forward: FeedForward { cutoff: Some((10, 1.644_853_4)), ..GEMMA.feed_forward },
    output: Output { softcap: LogitCap::Fixed(30.0), ..Arch::DENSE.output },
    // keys and values of blocks that attend to those of others
    ignored: &["attn_k.weight", "attn_v.weight", "attn_k_norm.weight"],
    steered: false,
    checkpoints: &[&Checkpoint {
        classes: &["Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"],
        activations: &["gelu_pytorch_tanh"],
        names: LAYER_INPUT_NAMES,
        more_names: &[
            ("altup_projections.*.weight", &["altup_proj.weight"]),
            ("altup_unembed_projections.*.weight", &["altup_unembd_proj.weight"]),
            ("altup.router_norm.weight", &["altup_router_norm.weight"]),
            ("altup.modality_router.weight", &["altup_router.weight"]),
            ("altup.prediction_coefs.weight", &["altup_predict_coef.weight"]),
            ("altup.correction_coefs.weight", &["altup_correct_coef.weight"]),
            ("altup.correct_output_scale", &["altup_correct_scale.weight"]),
            ("laurel.linear_left.weight", &["laurel_l.weight"]),
            ("laurel.linear_right.weight", &["laurel_r.weight"]),
            ("laurel.post_laurel_norm.weight", &["laurel_post_norm.weight"]),
        ],
        steps: &[
            ("embed_tokens.weight", &[Step::Padded]),
            ("embed_tokens_per_layer.weight", &[Step::Padded]),
            ("altup.prediction_coefs.weight", &[Step::InFloats]),
            ("altup.correction_coefs.weight", &[Step::InFloats]),
        ],
        tied: true,
        vocab: Some(262_400),
        heads: Some(8),
        kv_heads: KvHeads::StatedOr(4),
        head_dim: HeadDim::Fixed(256),
        width: Width::Alike,
        context: 131_072,
        rope_theta: 1_000_000.0,
        fixed: &[("attn_logit_softcapping", Fixed::Unset), ("altup_num_inputs", Fixed::Number(4.0))],
        more_keys: &[
            Key::IfList("intermediate_size", "feed_forward_length"),
            Key::Number("final_logit_softcapping", "final_logit_softcapping", 0.0),
            Key::Window(4096),
            Key::Whole(&["altup_active_idx"], "altup.active_idx"),
            Key::Whole(&["altup_num_inputs"], "altup.num_inputs"),
            Key::Whole(&["hidden_size_per_layer_input"], "embedding_length_per_layer_input"),
            Key::Whole(&["num_kv_shared_layers"], "attention.shared_kv_layers"),
            Key::Cutoffs("activation_sparsity_pattern", "activation_sparsity_scale"),
            Key::Kinds("layer_types", "sliding_attention", "attention.sliding_window_pattern"),
        ],
        space_prefix: SpacePrefix::Never,
        ..Checkpoint::USUAL
    }],
    ..GEMMA3
};

/// Groups that both kinds of blocks begin with.
const GEMMA4_MIXING: &[Group] = &[
    ATTN_NORM,
    QKV_OR_QK,
    HEAD_NORMS,
    PLAIN_VALUE_NORM,
    ATTN_OUT,
    ATTN_POST_NORM,
    PRE_FFN_NORM,
    GATED_FFN,
    FFN_POST_NORM,
    LAYER_INPUT,
    BLOCK_SCALE,
];

/// `gemma4`.
pub const GEMMA4: Arch = Arch {
    name: "gemma4",
    draft_state: DraftState::Normed,
    models: "Gemma 4 E2B, E4B, 31B, 26B-A4B (text)",
    ends: &[ENDS, OUTPUT_OR_TIED, ROPE_FACTORS_OF_HEADS, LAYER_INPUTS],
    block: GEMMA4_MIXING,
    expert_block: begun!(GEMMA4_MIXING, EXPERTS_OR_FUSED, EXPERTS_APART),
    layer_inputs: LayerInputs::Key,
    rope: RopeRule { factors_in_windows: false, ..GEMMA3.rope },
    window: Some(WindowRule { rope: WindowRope { own_dimensions: true, ..WindowRope::OWN }, ..WindowRule::needed(1) }),
    attention: Attention {
        scale: ScoreScale::One,
        shared_keys: SharedKeys::Last,
        heads_by_layer: true,
        sizes_by_window: true,
        ..Attention::USUAL
    },
    feed_forward: FeedForward { by_layer: true, ..GEMMA.feed_forward },
    experts: ExpertRule { layers: ExpertLayers::Routed, width: ExpertWidth::Key, apart: true, ..ExpertRule::USUAL },
    output: Output { softcap: LogitCap::KeyOr(30.0), ..Arch::DENSE.output },
    scaled: EXPERT_SCALES,
    // keys and values of blocks that attend to those of others
    ignored: &["attn_k.weight", "attn_v.weight", "attn_k_norm.weight"],
    checkpoints: &[
        &Checkpoint { classes: &["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"], ..GEMMA4_CHECKPOINT },
        &Checkpoint {
            classes: &["Gemma4UnifiedForConditionalGeneration"],
            last_keys: &[Key::Suppressed],
            ..GEMMA4_CHECKPOINT
        },
    ],
    ..GEMMA3
};

/// `gemma4-assistant`, whose blocks attend to keys of the model that it was trained for: it does not run by itself.
pub const GEMMA4_ASSISTANT: Arch = Arch {
    name: "gemma4-assistant",
    models: "Gemma 4 assistants",
    ends: &[ENDS, ROPE_FACTORS_OF_HEADS],
    block: &[QUERIES, ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, PRE_FFN_NORM, GATED_FFN, FFN_POST_NORM, BLOCK_SCALE],
    expert_block: &[],
    layer_inputs: LayerInputs::None,
    attention: Attention { shared_keys: SharedKeys::None, ..GEMMA4.attention },
    output: Arch::DENSE.output,
    scaled: &[],
    ignored: &["masked_embd_centroids.weight", "masked_embd_ordering"],
    checkpoints: &[&Checkpoint {
        classes: &["Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"],
        left_out: &["masked_embedding", "model.masked_embedding"],
        beside_ends: &[
            beside("pre_projection.weight", "nextn.pre_projection.weight", Role::ByRows),
            beside("post_projection.weight", "nextn.post_projection.weight", Role::ByRows),
        ],
        last_keys: &[
            Key::Whole(&["backbone_hidden_size"], "embedding_length_out"),
            Key::WholeOr(&["num_hidden_layers"], "nextn_predict_layers", 0),
        ],
        ..GEMMA4_CHECKPOINT
    }],
    ..GEMMA4
};

/// Query projections and the norms of their heads.
const QUERIES: Group = &[QKV_OR_QK[0], HEAD_NORMS[0]];

/// Names of the vectors of tokens for all blocks, and of the tensors that they go through.
const LAYER_INPUT_NAMES: &[Name] = &[
    ("embed_tokens_per_layer.weight", &["per_layer_token_embd.weight"]),
    ("per_layer_model_projection.weight", &["per_layer_model_proj.weight"]),
    ("per_layer_projection_norm.weight", &["per_layer_proj_norm.weight"]),
    ("per_layer_input_gate.weight", &["inp_gate.weight"]),
    ("per_layer_projection.weight", &["proj.weight"]),
    ("post_per_layer_input_norm.weight", &["post_norm.weight"]),
];

/// The common part of Gemma 4's checkpoints.
const GEMMA4_CHECKPOINT: Checkpoint = Checkpoint {
    activations: &["gelu_pytorch_tanh"],
    names: LAYER_INPUT_NAMES,
    more_names: &[
        ("layer_scalar", &["layer_output_scale.weight"]),
        ("pre_feedforward_layernorm_2.weight", &["pre_ffw_norm_2.weight"]),
        ("post_feedforward_layernorm_1.weight", &["post_ffw_norm_1.weight"]),
        ("post_feedforward_layernorm_2.weight", &["post_ffw_norm_2.weight"]),
        ("router.proj.weight", &["ffn_gate_inp.weight"]),
        ("router.scale", &["ffn_gate_inp.scale"]),
        ("experts.gate_up_proj", &["ffn_gate_up_exps.weight"]),
        ("experts.down_proj", &["ffn_down_exps.weight"]),
    ],
    beside: &[beside("router.per_expert_scale", "ffn_down_exps.scale", Role::Vector)],
    padded_embedding: true,
    tied: true,
    heads: Some(8),
    kv_heads: KvHeads::StatedOr(4),
    head_dim: HeadDim::Fixed(256),
    rotary: Rotary::OfHead(1.0),
    context: 131_072,
    rope_theta: 1_000_000.0,
    fixed: &[("attn_logit_softcapping", Fixed::Unset), ("per_layer_config", Fixed::Unset)],
    more_keys: &[
        Key::Number("final_logit_softcapping", "final_logit_softcapping", 0.0),
        Key::Window(4096),
        Key::Whole(&["num_kv_shared_layers"], "attention.shared_kv_layers"),
        Key::WholeOr(&["hidden_size_per_layer_input"], "embedding_length_per_layer_input", 0),
        Key::Kinds("layer_types", "sliding_attention", "attention.sliding_window_pattern"),
        Key::Whole(&["global_head_dim"], "attention.key_length"),
        Key::Whole(&["global_head_dim"], "attention.value_length"),
        Key::Whole(&["head_dim"], "attention.key_length_swa"),
        Key::Whole(&["head_dim"], "attention.value_length_swa"),
        Key::Whole(&["expert_intermediate_size", "moe_intermediate_size"], "expert_feed_forward_length"),
        Key::DoubleWidth("use_double_wide_mlp", "num_kv_shared_layers"),
        Key::ByKind(
            "sliding_attention",
            [&["num_key_value_heads"], &["num_global_key_value_heads"]],
            "attention.head_count_kv",
        ),
        Key::Whole(&["global_head_dim"], "rope.dimension_count"),
        Key::Whole(&["head_dim"], "rope.dimension_count_swa"),
    ],
    tokenizer: Tokenizer::Gemma4,
    space_prefix: SpacePrefix::Never,
    token_keys: &[TokenKey::AddBos(true)],
    dense_too: true,
    ..Checkpoint::USUAL
};
