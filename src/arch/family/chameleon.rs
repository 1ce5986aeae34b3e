//! Chameleon: norms of every head that take off the mean, a model of text whose tokens of images are not chosen; in
//! larger models norms behind the sublayers.

use crate::arch::parts::{ATTN_NORM, ATTN_OUT, FFN_NORM, GATED_FFN, OWN_HEAD_NORMS_BIASED, QKV, QKV_BIAS_OPTIONAL};
use crate::arch::rules::{Attention, Output, Residual, RopeRule};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, Step, Tokenizer};

/// `chameleon`.
pub const CHAMELEON: Arch = Arch {
    name: "chameleon",
    models: "Chameleon 7B, 34B (text)",
    block: &[ATTN_NORM, QKV, OWN_HEAD_NORMS_BIASED, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    attention: Attention { qk_layer_norm: Some(1e-5), ..Attention::USUAL },
    rope: RopeRule::ADJACENT,
    residual: Residual::SwinKey,
    output: Output { silent: Some((4, 8196)), ..Arch::DENSE.output },
    checkpoints: &[&Checkpoint {
        classes: &["ChameleonForConditionalGeneration", "ChameleonForCausalLM"],
        names: &[("self_attn.q_norm.bias", &["attn_q_norm.bias"]), ("self_attn.k_norm.bias", &["attn_k_norm.bias"])],
        steps: &[
            ("self_attn.q_norm.weight", ALL_HEADS),
            ("self_attn.q_norm.bias", ALL_HEADS),
            ("self_attn.k_norm.weight", ALL_HEADS),
            ("self_attn.k_norm.bias", ALL_HEADS),
        ],
        left_out: &["model.vqmodel"],
        head_dim: HeadDim::Implied,
        more_keys: &[Key::Flag("swin_norm", "swin_norm", false)],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// All heads have the norm of the first, as parallel parts of a model have one each.
const ALL_HEADS: &[Step] = &[Step::Reshaped, Step::FirstHeadTogether];
