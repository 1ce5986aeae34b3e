//! Mixtures with a norm on queries and keys or sinks: MiMo 2, MiniMax M2, Mellum, Maple.

use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, CHOICE_BIAS_REQUIRED, EXPERTS};
use crate::arch::factors::{ATTN_OUT_SCALE, EXPERT_SCALES};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, HEAD_NORMS, OUTPUT_REQUIRED, QK_NORMS, QKV, QKV_BIAS_OPTIONAL,
    SINKS_OPTIONAL,
};
use crate::arch::rules::{
    Attention, ExpertLayers, ExpertRule, ExpertWidth, FeedForward, GateClamp, GatingRule, RopeLayers, RopeRule,
    WindowRope, WindowRule,
};
use crate::arch::{Arch, Gating};

const ENDS_AND_OUTPUT: &[crate::arch::Group] = &[ENDS, OUTPUT_REQUIRED];

/// `mimo2`; biases and factors of the query, key and value projections are not applied.
pub const MIMO2: Arch = Arch {
    name: "mimo2",
    models: "MiMo V2",
    ends: ENDS_AND_OUTPUT,
    block: &[ATTN_NORM, QKV, SINKS_OPTIONAL, ATTN_OUT, FFN_NORM, GATED_FFN],
    expert_block: &[ATTN_NORM, QKV, SINKS_OPTIONAL, ATTN_OUT, FFN_NORM, EXPERTS, CHOICE_BIAS_OPTIONAL],
    attention: Attention { value_scale: true, ..Attention::USUAL },
    rope: RopeRule { yarn: false, ..RopeRule::PARTIAL },
    window: Some(WindowRule { rope: WindowRope::OWN, ..WindowRule::every(1) }),
    experts: ExpertRule {
        gating: GatingRule::Fixed(Gating::Sigmoid),
        width: ExpertWidth::Key,
        layers: ExpertLayers::Routed,
        ..ExpertRule::USUAL
    },
    scaled: ATTN_OUT_SCALE,
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
    ..Arch::DENSE
};

/// `maple`: gates bounded layer by layer, RoPE in layers with a window alone.
pub const MAPLE: Arch = Arch {
    name: "maple",
    models: "Maple",
    ends: ENDS_AND_OUTPUT,
    expert_block: NORMED_HEADS,
    rope: RopeRule { layers: RopeLayers::Windowed, ..RopeRule::PARTIAL },
    window: Some(WindowRule { rope: WindowRope { own_dimensions: true, ..WindowRope::KEYED }, ..WindowRule::every(1) }),
    feed_forward: FeedForward { clamp: GateClamp::Before, ..Arch::DENSE.feed_forward },
    experts: ExpertRule { width: ExpertWidth::Key, ..ExpertRule::USUAL },
    ..Arch::DENSE
};
