//! Chameleon: norms of every head that take off the mean, a model of text whose tokens of images are not chosen; in
//! larger models norms behind the sublayers.

use crate::arch::Arch;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, FFN_NORM, GATED_FFN, OWN_HEAD_NORMS_BIASED, QKV, QKV_BIAS_OPTIONAL};
use crate::arch::rules::{Attention, Output, Residual, RopeRule};

/// `chameleon`.
pub const CHAMELEON: Arch = Arch {
    name: "chameleon",
    models: "Chameleon 7B, 34B (text)",
    block: &[ATTN_NORM, QKV, OWN_HEAD_NORMS_BIASED, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    attention: Attention { qk_layer_norm: Some(1e-5), ..Attention::USUAL },
    rope: RopeRule::ADJACENT,
    residual: Residual::SwinKey,
    output: Output { silent: Some((4, 8196)), ..Arch::DENSE.output },
    ..Arch::DENSE
};
