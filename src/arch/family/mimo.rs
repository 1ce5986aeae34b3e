//! Mixtures with a norm on queries and keys or sinks: MiMo 2, MiniMax M2, Mellum, Maple.

use super::llama::MIXTRAL;
use super::qwen::{DOWN_GATE_UP, GATE_UP_DOWN};
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, CHOICE_BIAS_REQUIRED, EXPERTS};
use crate::arch::factors::{ATTN_OUT_SCALE, EXPERT_SCALES};
use crate::arch::mtp_parts::MTP_OR_OUT_NORM;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, HEAD_NORMS, OUTPUT_REQUIRED, QK_NORMS, QKV, QKV_BIAS_OPTIONAL,
    SINKS_OPTIONAL,
};
use crate::arch::rules::{
    Attention, DraftState, ExpertLayers, ExpertRule, ExpertWidth, FeedForward, GateClamp, GatingRule, HeadRule,
    RopeLayers, RopeRule, WindowRope, WindowRule,
};
use crate::arch::{Arch, Checkpoint, Fixed, Gating, HeadDim, Key, Rotary, Tokenizer};

const ENDS_AND_OUTPUT: &[crate::arch::Group] = &[ENDS, OUTPUT_REQUIRED];

/// `mimo2`; biases and factors of the query, key and value projections are not applied.
pub const MIMO2: Arch = Arch {
    name: "mimo2",
    mtp: MTP_OR_OUT_NORM,
    heads: HeadRule::Chained,
    draft_state: DraftState::Stream,
    models: "MiMo V2",
    ends: ENDS_AND_OUTPUT,
    block: &[ATTN_NORM, QKV, SINKS_OPTIONAL, ATTN_OUT, FFN_NORM, GATED_FFN],
    expert_block: &[ATTN_NORM, QKV, SINKS_OPTIONAL, ATTN_OUT, FFN_NORM, EXPERTS, CHOICE_BIAS_OPTIONAL],
    attention: Attention { value_scale: true, heads_by_layer: true, values_apart: true, ..Attention::USUAL },
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule { rope: WindowRope::OWN, ..WindowRule::needed(1) }),
    experts: ExpertRule {
        gating: GatingRule::Fixed(Gating::Sigmoid),
        width: ExpertWidth::Key,
        layers: ExpertLayers::Routed,
        ..ExpertRule::USUAL
    },
    scaled: ATTN_OUT_SCALE,
    checkpoints: &[&Checkpoint {
        classes: &["MiMoV2FlashForCausalLM"],
        names: GATE_UP_DOWN,
        more_names: &[
            ("mlp.gate.e_score_correction_bias", &["exp_probs_b.bias"]),
            ("self_attn.attention_sink_bias", &["attn_sinks.weight"]),
        ],
        // heads that predict further tokens
        left_out: &["model.mtp."],
        head_dim: HeadDim::Implied,
        rotary: Rotary::OfHead(1.0),
        rms_eps: None,
        more_keys: &[
            Key::KvHeadsByPattern("hybrid_layer_pattern", "swa_num_key_value_heads"),
            Key::Whole(&["sliding_window"], "attention.sliding_window"),
            Key::Numbers("hybrid_layer_pattern", "attention.sliding_window_pattern"),
            Key::Whole(&["v_head_dim"], "attention.value_length"),
            Key::Whole(&["n_routed_experts"], "expert_count"),
            Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length"),
            Key::RopeDimensions,
            Key::FractionOr(&["layernorm_epsilon"], "attention.layer_norm_rms_epsilon", 1e-5),
            Key::Fraction(&["attention_value_scale"], "attention.value_scale"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ignored: &["attn_q.bias", "attn_k.bias", "attn_v.bias", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"],
    ..Arch::DENSE
};

/// `minimax-m2`.
pub const MINIMAX_M2: Arch = Arch {
    name: "minimax-m2",
    models: "MiniMax M2",
    ends: ENDS_AND_OUTPUT,
    expert_block: &[ATTN_NORM, QKV, QK_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, CHOICE_BIAS_REQUIRED, QKV_BIAS_OPTIONAL],
    rope: RopeRule::PARTIAL,
    experts: ExpertRule { gating: GatingRule::Key(None), ..ExpertRule::USUAL },
    checkpoints: &[&Checkpoint {
        classes: &["MiniMaxM2ForCausalLM"],
        names: MIXTRAL,
        more_names: &[("block_sparse_moe.e_score_correction_bias", &["exp_probs_b.bias"])],
        head_dim: HeadDim::Implied,
        rotary: Rotary::Stated("rotary_dim"),
        more_keys: &[Key::Whole(&["intermediate_size"], "expert_feed_forward_length"), Key::RopeDimensions],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

const NORMED_HEADS: &[crate::arch::Group] =
    &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL];

/// `mellum`.
pub const MELLUM: Arch = Arch {
    name: "mellum",
    models: "Mellum 2",
    ends: ENDS_AND_OUTPUT,
    expert_block: NORMED_HEADS,
    window: Some(WindowRule { rope: WindowRope::UNSCALED, ..WindowRule::every(4) }),
    experts: ExpertRule { width: ExpertWidth::KeyOrShare, ..ExpertRule::USUAL },
    scaled: EXPERT_SCALES,
    checkpoints: &[&Checkpoint {
        classes: &["MellumForCausalLM"],
        names: DOWN_GATE_UP,
        head_dim: HeadDim::Implied,
        fixed: &[("use_sliding_window", Fixed::True)],
        more_keys: &[
            Key::ExpertWidth,
            Key::Whole(&["sliding_window"], "attention.sliding_window"),
            Key::WindowLayersIfAny,
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `maple`: gates bounded layer by layer, RoPE in layers with a window alone.
pub const MAPLE: Arch = Arch {
    name: "maple",
    models: "Maple",
    ends: ENDS_AND_OUTPUT,
    expert_block: NORMED_HEADS,
    rope: RopeRule { layers: RopeLayers::Windowed, ..RopeRule::PARTIAL },
    window: Some(WindowRule {
        rope: WindowRope { own_dimensions: true, ..WindowRope::KEYED },
        ..WindowRule::needed(1)
    }),
    feed_forward: FeedForward { clamp: GateClamp::Before, ..Arch::DENSE.feed_forward },
    experts: ExpertRule { width: ExpertWidth::Key, ..ExpertRule::USUAL },
    checkpoints: &[&Checkpoint {
        classes: &["MapleForCausalLM"],
        names: DOWN_GATE_UP,
        rotary: Rotary::OfHead(1.0),
        head_dim: HeadDim::Implied,
        rope_theta: 0.0,
        fixed: &[
            ("num_shared_experts", Fixed::Unset),
            ("norm_topk_prob", Fixed::True),
            ("nope_on_global_attention", Fixed::True),
        ],
        // the bound of the gates is the graph's
        more_keys: &[
            Key::VocabSize,
            Key::RopeDimensions,
            Key::Window(512),
            Key::WindowLayers,
            Key::ExpertWidth,
            Key::PerBlock("", "swiglu_clamp_exp", 7.0),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
