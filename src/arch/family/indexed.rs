//! Latent attention to positions that an indexer chooses: DeepSeek 3.2, GLM 5, dots.note, Hunyuan 4. In sequences that
//! are not longer than what it may choose it chooses all, and its tensors are of no use.

use super::deepseek2::{self, DEEPSEEK2, MISTRAL4};
use super::glm::SPECIAL as GLM_SPECIAL;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::factors::ALL_SCALES;
use crate::arch::latent_parts::{EXPANSION_BY_HEAD, LATENT, LATENT_GATE, LATENT_OUT, RANKED_QUERIES, TURNED_KEY_NORM};
use crate::arch::parts::{
    ATTN_HEAD_GATE, ATTN_NORM, CONNECTIONS, ENDS, FFN_NORM, GATED_FFN, Group, LAST_CONNECTION, OUTPUT_REQUIRED, SINKS,
    begun, beside,
};
use crate::arch::rules::{
    Attention, ExpertRule, FeedForward, GateClamp, GatingRule, RopeRule, ScoreScale, Streams, Temperature, WindowBase,
    WindowRope, WindowRule, YarnLog,
};
use crate::arch::tensor::Role::{Bias, ByRows, Norm, Router};
use crate::arch::{Arch, Checkpoint, Fixed, Gating, Key, Step};

/// The indexer's tensors.
pub const INDEXER: &[&str] = &[
    "indexer.k_norm.weight",
    "indexer.k_norm.bias",
    "indexer.proj.weight",
    "indexer.attn_k.weight",
    "indexer.attn_q_b.weight",
];

/// The same, as checkpoints have them.
pub const INDEXER_TENSORS: Group = &[
    beside("self_attn.indexer.k_norm.weight", "indexer.k_norm.weight", Norm),
    beside("self_attn.indexer.k_norm.bias", "indexer.k_norm.bias", Bias),
    beside("self_attn.indexer.weights_proj.weight", "indexer.proj.weight", Router),
    beside("self_attn.indexer.wk.weight", "indexer.attn_k.weight", ByRows),
    beside("self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight", ByRows),
];

/// Its numbers.
pub const INDEXER_KEYS: &[Key] = &[
    Key::Whole(&["index_n_heads"], "attention.indexer.head_count"),
    Key::Whole(&["index_head_dim"], "attention.indexer.key_length"),
    Key::Whole(&["index_topk"], "attention.indexer.top_k"),
];

/// The common part of checkpoints.
const INDEXED: Checkpoint = Checkpoint { beside: INDEXER_TENSORS, ..deepseek2::CHECKPOINT };

/// Groups that both kinds of blocks begin with.
const DEEPSEEK32_MIXING: &[Group] = &[ATTN_NORM, RANKED_QUERIES, LATENT, EXPANSION_BY_HEAD, LATENT_OUT, FFN_NORM];

/// `deepseek32`.
pub const DEEPSEEK32: Arch = Arch {
    name: "deepseek32",
    models: "DeepSeek 3.2",
    block: begun!(DEEPSEEK32_MIXING, GATED_FFN),
    expert_block: begun!(DEEPSEEK32_MIXING, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED),
    attention: Attention {
        indexed: true,
        turned_like_indexer: true,
        temperature: Temperature::None,
        ..DEEPSEEK2.attention
    },
    rope: MISTRAL4.rope,
    experts: ExpertRule { gating: GatingRule::Key(None), ..DEEPSEEK2.experts },
    scaled: ALL_SCALES,
    ignored: INDEXER,
    checkpoints: &[&Checkpoint { classes: &["DeepseekV32ForCausalLM"], last_keys: INDEXER_KEYS, ..INDEXED }],
    ..DEEPSEEK2
};

/// `glm-dsa`.
pub const GLM_DSA: Arch = Arch {
    name: "glm-dsa",
    models: "GLM 5, 5.1, 5.2",
    rope: RopeRule { yarn_log: YarnLog::None, ..DEEPSEEK32.rope },
    experts: ExpertRule { gating: GatingRule::Key(Some(Gating::Sigmoid)), ..DEEPSEEK32.experts },
    checkpoints: &[&Checkpoint {
        classes: &["GlmMoeDsaForCausalLM"],
        special: GLM_SPECIAL,
        last_keys: &[
            Key::RopeDimensions,
            INDEXER_KEYS[0],
            INDEXER_KEYS[1],
            INDEXER_KEYS[2],
            Key::Kinds("indexer_types", "full", "attention.indexer.types"),
        ],
        ..INDEXED
    }],
    ..DEEPSEEK32
};

/// Groups that both kinds of blocks begin with.
const DOTS3NOTE_MIXING: &[Group] =
    &[ATTN_NORM, RANKED_QUERIES, LATENT, TURNED_KEY_NORM, EXPANSION_BY_HEAD, ATTN_HEAD_GATE, LATENT_OUT, FFN_NORM];

/// `dots3note`: windows in most layers, a norm of the keys' turned elements, and a gate on every head's output.
pub const DOTS3NOTE: Arch = Arch {
    name: "dots3note",
    models: "dots.note 288B-A19B",
    block: begun!(DOTS3NOTE_MIXING, GATED_FFN),
    expert_block: begun!(DOTS3NOTE_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    attention: Attention { scale: ScoreScale::HeadSize, ..DEEPSEEK32.attention },
    rope: GLM_DSA.rope,
    window: Some(WindowRule {
        rope: WindowRope { base: WindowBase::Key, ..WindowRope::SAME },
        ..WindowRule::needed(1)
    }),
    checkpoints: &[],
    unconverted: "no: its layers have two sizes, which do not run",
    ..DEEPSEEK32
};

/// Groups that both kinds of blocks begin with.
const HY_V4_MIXING: &[Group] =
    &[CONNECTIONS, ATTN_NORM, RANKED_QUERIES, LATENT, EXPANSION_BY_HEAD, SINKS, LATENT_GATE, LATENT_OUT, FFN_NORM];

/// `hy_v4`: several residual streams side by side, sinks, and gates on every element of the heads' outputs.
pub const HY_V4: Arch = Arch {
    name: "hy_v4",
    models: "Hunyuan 4",
    ends: &[ENDS, OUTPUT_REQUIRED, LAST_CONNECTION],
    block: begun!(HY_V4_MIXING, GATED_FFN),
    expert_block: begun!(HY_V4_MIXING, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED),
    streams: Streams::Weighed,
    attention: Attention { scale: ScoreScale::HeadSize, turned_like_indexer: false, ..DEEPSEEK32.attention },
    rope: GLM_DSA.rope,
    feed_forward: FeedForward { clamp: GateClamp::Before, ..DEEPSEEK32.feed_forward },
    scaled: &[],
    steered: false,
    checkpoints: &[&Checkpoint {
        classes: &["HYV4ForCausalLM"],
        names: &[
            ("hc_head.hc_head_fn", &["output_hc_fn.weight"]),
            ("hc_head.hc_head_base", &["output_hc_base.weight"]),
            ("hc_head.hc_head_scale", &["output_hc_scale.weight"]),
            ("hc_attn_layer.hc_pre.hc_fn", &["hc_attn_fn.weight"]),
            ("hc_attn_layer.hc_pre.hc_base", &["hc_attn_base.weight"]),
            ("hc_attn_layer.hc_pre.hc_scale", &["hc_attn_scale.weight"]),
            ("hc_mlp_layer.hc_pre.hc_fn", &["hc_ffn_fn.weight"]),
            ("hc_mlp_layer.hc_pre.hc_base", &["hc_ffn_base.weight"]),
            ("hc_mlp_layer.hc_pre.hc_scale", &["hc_ffn_scale.weight"]),
            ("self_attn.learnable_sink_param", &["attn_sinks.weight"]),
            ("mlp.gate.weight", &["ffn_gate_inp.weight"]),
            ("mlp.experts.gate_up_proj", &["ffn_gate_exps.weight", "ffn_up_exps.weight"]),
            ("mlp.experts.down_proj", &["ffn_down_exps.weight"]),
        ],
        steps: &[
            ("self_attn.kv_b_proj.weight", &[Step::KeysAndValues]),
            ("hc_head.hc_head_fn", &[Step::InFloats]),
            ("hc_attn_layer.hc_pre.hc_fn", &[Step::InFloats]),
            ("hc_mlp_layer.hc_pre.hc_fn", &[Step::InFloats]),
        ],
        left_out: &["model.mtp_layers."],
        fixed: &[
            ("enable_lm_head_fp32", Fixed::Unset),
            ("n_group", Fixed::Number(1.0)),
            ("topk_group", Fixed::Number(1.0)),
        ],
        keys: Key::USUAL_UNGROUPED,
        last_keys: &[
            Key::Constant("expert_gating_func", 2),
            Key::PerBlock("swiglu_limit", "swiglu_clamp_exp", 0.0),
            Key::Whole(&["hc_mult"], "hyper_connection.count"),
            Key::Fraction(&["hc_eps"], "hyper_connection.epsilon"),
            Key::Fraction(&["hc_magnitude"], "hyper_connection.magnitude"),
            INDEXER_KEYS[0],
            INDEXER_KEYS[1],
            INDEXER_KEYS[2],
            Key::Kinds("indexer_types", "full", "attention.indexer.types"),
        ],
        ..INDEXED
    }],
    ..DEEPSEEK32
};
