//! OLMo 1 (norms without gains), OLMo 2 (and TriTera, which has its shape): no norm before the sublayers of a block,
//! one after each before the residual addition, and an RMS norm over all of q and all of k; OLMoE has norms before the
//! sublayers again.

use super::qwen::EXPERT_NAMES;
use crate::arch::expert_parts::EXPERTS;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, ENDS, FFN_NORM, FFN_POST_NORM, GATED_FFN, OUTPUT_OR_TIED, OUTPUT_REQUIRED,
    PLAIN_ATTN_NORM, PLAIN_ENDS, PLAIN_FFN_NORM, QK_NORMS, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{Attention, ExpertRule, NormKind, Normalize, RopeRule, WindowRope, WindowRule};
use crate::arch::{Arch, Checkpoint, Fixed, HeadDim, Key, Tokenizer};

/// `olmo`.
pub const OLMO: Arch = Arch {
    name: "olmo",
    models: "OLMo 1",
    ends: &[PLAIN_ENDS, OUTPUT_OR_TIED],
    block: &[PLAIN_ATTN_NORM, QKV, ATTN_OUT, PLAIN_FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    norm: NormKind::Layer,
    attention: Attention { clamp: true, ..Attention::USUAL },
    rope: RopeRule::ADJACENT,
    checkpoints: &[&Checkpoint {
        classes: &["OlmoForCausalLM"],
        head_dim: HeadDim::Implied,
        rms_eps: None,
        more_keys: &[
            Key::Number("layer_norm_eps", "attention.layer_norm_epsilon", 1e-5),
            Key::Number("clip_qkv", "attention.clamp_kqv", 0.0),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `olmo2`.
pub const OLMO2: Arch = Arch {
    name: "olmo2",
    models: "OLMo 2, OLMo 3, TriTera",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[QKV, QK_NORMS, ATTN_OUT, ATTN_POST_NORM, GATED_FFN, FFN_POST_NORM, QKV_BIAS_OPTIONAL],
    window: Some(WindowRule { rope: WindowRope::UNSCALED, ..WindowRule::every(4) }),
    checkpoints: &[
        &Checkpoint { classes: &["Olmo2ForCausalLM"], ..OLMO2_CHECKPOINT },
        &Checkpoint {
            classes: &["Olmo3ForCausalLM"],
            more_keys: &[Key::Window(4096), Key::WindowLayers],
            ..OLMO2_CHECKPOINT
        },
    ],
    ..Arch::DENSE
};

/// The common part of OLMo 2's and 3's checkpoints.
const OLMO2_CHECKPOINT: Checkpoint =
    Checkpoint { rms_eps: Some(1e-5), head_dim: HeadDim::Implied, ..Checkpoint::USUAL };

/// `olmoe`.
pub const OLMOE: Arch = Arch {
    name: "olmoe",
    models: "OLMoE",
    ends: &[ENDS, OUTPUT_REQUIRED],
    expert_block: &[ATTN_NORM, QKV, QK_NORMS, ATTN_OUT, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    experts: ExpertRule { normalize: Normalize::Never, ..ExpertRule::USUAL },
    checkpoints: &[&Checkpoint {
        classes: &["OlmoeForCausalLM"],
        names: EXPERT_NAMES,
        head_dim: HeadDim::Implied,
        context: 4096,
        // llama.cpp's converter writes this one whatever config.json says
        rms_eps: Some(1e-5),
        fixed: &[("rms_norm_eps", Fixed::Number(1e-5)), ("norm_topk_prob", Fixed::Unset), ("clip_qkv", Fixed::Unset)],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
