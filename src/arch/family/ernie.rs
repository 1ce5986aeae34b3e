//! ERNIE 4.5, dense, with experts at regular intervals of layers, and the text model of PaddleOCR.

use crate::arch::Arch;
use crate::arch::expert_parts::{CHOICE_BIAS_OPTIONAL, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, ENDS, FFN_NORM, GATED_FFN, OUTPUT_OR_TIED, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{ExpertLayers, ExpertRule, ExpertWidth, RopeRule, Sections, SharedWidth};

/// `ernie4_5`; the bias of the output projection is not added, and a number of experts means nothing.
pub const ERNIE4_5: Arch = Arch {
    name: "ernie4_5",
    models: "ERNIE 4.5 0.3B",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule::ADJACENT,
    experts: ExpertRule { layers: ExpertLayers::None, ..ExpertRule::USUAL },
    ignored: &["attn_output.bias"],
    ..Arch::DENSE
};

/// `ernie4_5-moe`.
pub const ERNIE4_5_MOE: Arch = Arch {
    name: "ernie4_5-moe",
    models: "ERNIE 4.5 21B-A3B, 300B-A47B",
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, CHOICE_BIAS_OPTIONAL, SHARED, QKV_BIAS_OPTIONAL],
    experts: ExpertRule {
        width: ExpertWidth::Key,
        shared: SharedWidth::Key,
        layers: ExpertLayers::EveryAfterLeading,
        ..ExpertRule::USUAL
    },
    ..ERNIE4_5
};

/// `paddleocr`.
pub const PADDLEOCR: Arch = Arch {
    name: "paddleocr",
    models: "PaddleOCR-VL (text)",
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    rope: RopeRule { sections: Sections::InOrder, ..RopeRule::HALVES },
    ignored: &[],
    ..ERNIE4_5
};
