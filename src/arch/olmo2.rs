//! OLMo 2 (and TriTera, which has its shape): no norm before the halves of a block, one after each
//! before the residual addition, and an RMS norm over all of q and all of k.

use super::parts::{
    ATTN_OUT, ATTN_POST_NORM, ENDS, FFN_POST_NORM, GATED_FFN, OUTPUT_REQUIRED, QK_NORMS, QKV,
    QKV_BIAS_OPTIONAL,
};
use super::{Arch, Checkpoint, HeadDim, WindowRope, WindowRule};

/// `olmo2`.
pub const OLMO2: Arch = Arch {
    name: "olmo2",
    models: "OLMo 2, OLMo 3, TriTera",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[
        QKV,
        QK_NORMS,
        ATTN_OUT,
        ATTN_POST_NORM,
        GATED_FFN,
        FFN_POST_NORM,
        QKV_BIAS_OPTIONAL,
    ],
    window: Some(WindowRule {
        period: 4,
        rope: WindowRope::SameBase,
    }),
    checkpoint: Some(&Checkpoint {
        classes: &["Olmo2ForCausalLM"],
        rms_eps: 1e-5,
        head_dim: HeadDim::Implied,
        ..Checkpoint::USUAL
    }),
    ..Arch::DENSE
};
