//! ChatGLM 2 to GLM 4: gate and up projection in one matrix, and GLM 4.5 with experts.

use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, FFN_NORM, FFN_NORM_AFTER_ATTN, FFN_POST_NORM, FUSED_FFN, GATED_FFN,
    HEAD_NORMS_OPTIONAL, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{ExpertRule, ExpertWidth, RopeRule, Sections, SharedWidth};
use crate::arch::{Arch, Pairing};

const ROPE: RopeRule = RopeRule { pairing: Pairing::Adjacent, ..RopeRule::PARTIAL };

/// `chatglm`.
pub const CHATGLM: Arch = Arch {
    name: "chatglm",
    models: "ChatGLM 2 and 3, GLM 4 9B, GLM Edge",
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, FUSED_FFN, QKV_BIAS_OPTIONAL],
    rope: ROPE,
    ..Arch::DENSE
};

/// `glm4`.
pub const GLM4: Arch = Arch {
    name: "glm4",
    models: "GLM 4 0414, GLM 4.1 V (text)",
    block: &[ATTN_NORM, QKV, ATTN_OUT, ATTN_POST_NORM, FFN_NORM, FUSED_FFN, FFN_POST_NORM, QKV_BIAS_OPTIONAL],
    rope: RopeRule { sections: Sections::IfAny, ..ROPE },
    ..Arch::DENSE
};

/// `glm4moe`.
pub const GLM4MOE: Arch = Arch {
    name: "glm4moe",
    models: "GLM 4.5, 4.6, 4.7",
    block: &[ATTN_NORM, QKV, HEAD_NORMS_OPTIONAL, ATTN_OUT, FFN_NORM_AFTER_ATTN, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS_OPTIONAL,
        ATTN_OUT,
        FFN_NORM_AFTER_ATTN,
        EXPERTS,
        CHOICE_BIAS_REQUIRED,
        SHARED,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule { sections: Sections::IfAny, ..RopeRule::PARTIAL },
    experts: ExpertRule { width: ExpertWidth::KeyOrShare, shared: SharedWidth::Count, ..ExpertRule::KEYED },
    ..Arch::DENSE
};
