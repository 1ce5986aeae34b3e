//! Step 3.5: a gate on every head's output, more query heads in layers with a window, gates bounded layer by layer, and
//! RoPE on half of the heads' elements in layers without a window.

use crate::arch::Arch;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_HEAD_GATE_OPTIONAL, ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, Group, HEAD_NORMS_OPTIONAL,
    OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT, begun,
};
use crate::arch::rules::{
    Attention, ExpertLayers, ExpertRule, FeedForward, GateClamp, RopeRule, SharedWidth, WindowRope, WindowRule,
};

/// Groups that both kinds of blocks begin with.
const MIXING: &[Group] =
    &[ATTN_NORM, QKV, HEAD_NORMS_OPTIONAL, ATTN_HEAD_GATE_OPTIONAL, ATTN_OUT, FFN_NORM, QKV_BIAS_OPTIONAL];

/// `step35`.
pub const STEP35: Arch = Arch {
    name: "step35",
    models: "Step 3.5 Flash",
    ends: &[ENDS, OUTPUT_REQUIRED, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT],
    block: begun!(MIXING, GATED_FFN),
    expert_block: begun!(MIXING, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED),
    rope: RopeRule { global_half: true, factors_in_windows: false, yarn: false, ..RopeRule::PARTIAL },
    window: Some(WindowRule { rope: WindowRope { own_dimensions: true, ..WindowRope::OWN }, ..WindowRule::every(1) }),
    attention: Attention { heads_by_layer: true, ..Attention::USUAL },
    feed_forward: FeedForward { clamp: GateClamp::After, ..Arch::DENSE.feed_forward },
    experts: ExpertRule { layers: ExpertLayers::Routed, shared: SharedWidth::Key, ..ExpertRule::KEYED },
    // the dense network of blocks that have experts
    ignored: &["ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"],
    ..Arch::DENSE
};
