//! Hunyuan: norms on every query and key head after RoPE, and experts; Hunyuan 3, whose norms come first.

use crate::arch::Arch;
use crate::arch::expert_parts::{CHOICE_BIAS_BARE, EXPERTS, EXPERTS_OR_FUSED, SHARED};
use crate::arch::factors::ALL_SCALES;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, FFN_NORM, GATED_FFN, HEAD_NORMS, QKV, QKV_BIAS_OPTIONAL};
use crate::arch::rules::{Attention, ExpertLayers, ExpertRule, ExpertWidth, QkNorms, RopeRule, Sections, SharedWidth};

/// `hunyuan-dense`; a number of experts of 1 or less is none.
pub const HUNYUAN_DENSE: Arch = Arch {
    name: "hunyuan-dense",
    models: "Hunyuan 0.5B to 7B",
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    attention: Attention { qk_norms: QkNorms::AfterRope, ..Attention::USUAL },
    rope: RopeRule { alpha: true, ..RopeRule::HALVES },
    experts: ExpertRule { layers: ExpertLayers::None, ..ExpertRule::USUAL },
    ..Arch::DENSE
};

/// `hunyuan_vl`.
pub const HUNYUAN_VL: Arch = Arch {
    name: "hunyuan_vl",
    models: "HunyuanOCR (text)",
    rope: RopeRule { sections: Sections::IfAny, ..HUNYUAN_DENSE.rope },
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
    ..HUNYUAN_DENSE
};
