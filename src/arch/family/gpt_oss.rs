//! gpt-oss: sinks, windows in every other layer, biases on router and experts, a clamped gate.

use crate::arch::expert_parts::{EXPERT_BIASES, EXPERTS};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS, ENDS, FFN_NORM_AFTER_ATTN, OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, SINKS,
};
use crate::arch::rules::{ExpertRule, ExpertWidth, FeedForward, GatingRule, Normalize, WindowRope, WindowRule};
use crate::arch::{Activation, Arch, Gating};

/// `gpt-oss`.
pub const GPT_OSS: Arch = Arch {
    name: "gpt-oss",
    models: "gpt-oss 20B, 120B",
    ends: &[ENDS, OUTPUT_REQUIRED],
    expert_block: &[
        ATTN_NORM,
        QKV,
        ATTN_OUT,
        ATTN_OUT_BIAS,
        SINKS,
        FFN_NORM_AFTER_ATTN,
        EXPERTS,
        EXPERT_BIASES,
        QKV_BIAS_OPTIONAL,
    ],
    window: Some(WindowRule { rope: WindowRope::KEYED, ..WindowRule::every(2) }),
    feed_forward: FeedForward { activation: Activation::OpenAiSwiglu, ..Arch::DENSE.feed_forward },
    experts: ExpertRule {
        gating: GatingRule::Fixed(Gating::SoftMaxOfChosen),
        normalize: Normalize::Never,
        width: ExpertWidth::Key,
        ..ExpertRule::USUAL
    },
    ..Arch::DENSE
};
