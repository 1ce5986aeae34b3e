//! Hunyuan: norms on every query and key head after RoPE, and experts; Hunyuan 3, whose norms come first.

use super::qwen::DOWN_GATE_UP;
use crate::arch::expert_parts::{CHOICE_BIAS_BARE, EXPERTS, EXPERTS_OR_FUSED, SHARED};
use crate::arch::factors::ALL_SCALES;
use crate::arch::mtp_parts::MTP;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, FFN_NORM, GATED_FFN, HEAD_NORMS, QKV, QKV_BIAS_OPTIONAL};
use crate::arch::rules::{
    Attention, ExpertLayers, ExpertRule, ExpertWidth, HeadRule, QkNorms, RopeRule, Sections, SharedWidth,
};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, TokenKey, Tokenizer};

/// `hunyuan-dense`; a number of experts of 1 or less is none.
pub const HUNYUAN_DENSE: Arch = Arch {
    name: "hunyuan-dense",
    models: "Hunyuan 0.5B to 7B",
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    attention: Attention { qk_norms: QkNorms::AfterRope, ..Attention::USUAL },
    rope: RopeRule { alpha: true, ..RopeRule::HALVES },
    experts: ExpertRule { layers: ExpertLayers::None, ..ExpertRule::USUAL },
    checkpoints: &[&Checkpoint { classes: &["HunYuanDenseV1ForCausalLM"], ..CHECKPOINT }],
    ..Arch::DENSE
};

/// The common part of dense checkpoints. The positions of most were stretched after the training.
const CHECKPOINT: Checkpoint = Checkpoint {
    // without the number of experts, which is 1 where there are none
    keys: &[
        Key::Blocks,
        Key::Context,
        Key::Embedding,
        Key::FeedForward,
        Key::Heads,
        Key::KvHeads,
        Key::RopeScaling,
        Key::Sections,
        Key::RopeBase,
        Key::RmsEpsilon,
        Key::ExpertsUsed,
        Key::HeadSizes,
        Key::FileType,
    ],
    more_keys: &[Key::Stretched(50.0, Some(262_144))],
    tokenizer: Tokenizer::Json,
    token_keys: &[TokenKey::FirstOfEnds],
    tied_left_out: true,
    head_dim: HeadDim::Implied,
    ..Checkpoint::USUAL
};

/// `hunyuan_vl`.
pub const HUNYUAN_VL: Arch = Arch {
    name: "hunyuan_vl",
    models: "HunyuanOCR (text)",
    rope: RopeRule { sections: Sections::IfAny, ..HUNYUAN_DENSE.rope },
    checkpoints: &[&Checkpoint {
        classes: &["HunYuanVLForConditionalGeneration"],
        more_keys: &[Key::TurnedByAxes],
        token_keys: &[TokenKey::Stated("eod_token_id", "eos_token_id"), TokenKey::FirstOfEnds],
        ..CHECKPOINT
    }],
    ..HUNYUAN_DENSE
};

/// `hunyuan-moe`.
pub const HUNYUAN_MOE: Arch = Arch {
    name: "hunyuan-moe",
    models: "Hunyuan A13B",
    block: &[],
    expert_block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, SHARED, QKV_BIAS_OPTIONAL],
    rope: RopeRule::HALVES,
    experts: ExpertRule { shared: SharedWidth::KeyOrFull, ..ExpertRule::USUAL },
    checkpoints: &[&Checkpoint {
        classes: &["HunYuanMoEV1ForCausalLM"],
        names: DOWN_GATE_UP,
        more_names: &[("mlp.gate.wg.weight", &["ffn_gate_inp.weight"])],
        keys: Key::USUAL,
        more_keys: &[
            Key::Whole(&["intermediate_size"], "expert_shared_feed_forward_length"),
            Key::FirstOf("moe_intermediate_size", "expert_feed_forward_length"),
            Key::FirstOf("moe_topk", "expert_used_count"),
            Key::FirstOf("num_shared_expert", "expert_shared_count"),
            Key::Stretched(1000.0, Some(262_144)),
        ],
        token_keys: &[TokenKey::Id("bos_token_id", 127_959)],
        ..CHECKPOINT
    }],
    ..HUNYUAN_DENSE
};

/// `hy_v3`.
pub const HY_V3: Arch = Arch {
    name: "hy_v3",
    models: "Hunyuan 3",
    expert_block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        FFN_NORM,
        EXPERTS_OR_FUSED,
        CHOICE_BIAS_BARE,
        SHARED,
        QKV_BIAS_OPTIONAL,
    ],
    mtp: MTP,
    heads: HeadRule::Chained,
    attention: Attention::USUAL,
    rope: RopeRule::HALVES,
    experts: ExpertRule {
        width: ExpertWidth::KeyOrShare,
        shared: SharedWidth::KeyOrExpert,
        layers: ExpertLayers::Routed,
        ..ExpertRule::KEYED
    },
    scaled: ALL_SCALES,
    // dense networks beside experts are not computed
    ignored: &["ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"],
    checkpoints: &[&Checkpoint {
        classes: &["HYV3ForCausalLM"],
        names: DOWN_GATE_UP,
        more_names: &[("mlp.router.gate.weight", &["ffn_gate_inp.weight"]), ("mlp.expert_bias", &["exp_probs_b"])],
        more_keys: &[
            Key::ExpertWidth,
            Key::Product(&["moe_intermediate_size"], &["num_shared_experts"], "expert_shared_feed_forward_length"),
            Key::Flag("route_norm", "expert_weights_norm", true),
            Key::FractionOr(&["router_scaling_factor"], "expert_weights_scale", 1.0),
            Key::Constant("expert_gating_func", 2),
        ],
        tokenizer: Tokenizer::Json,
        head_dim: HeadDim::Implied,
        ..Checkpoint::USUAL
    }],
    ..HUNYUAN_DENSE
};
