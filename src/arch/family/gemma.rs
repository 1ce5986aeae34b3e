//! Gemma: embeddings times the root of their width, GeGLU. From Gemma 2 on norms before and after both sublayers of a
//! block and windows; Gemma 2 bounds scores and logits; Gemma 3 has an RMS norm on every query and key head, and window
//! layers with their own RoPE base. Gemma 3n predicts three of four residual streams, has a path of low rank beside
//! attention and a vector of every token for each block, and later blocks attend to the keys of earlier ones.
//!
//! Norm weights are used as stored: the converter has already added the 1 of Gemma's formula.

use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, ENDS, FFN_NORM, FFN_POST_NORM, GATED_FFN, HEAD_NORMS, OUTPUT_OR_TIED,
    PLAIN_VALUE_NORM, PRE_FFN_NORM, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{
    Attention, EmbeddingScale, FeedForward, LayerInputs, LogitCap, Output, RopeRule, ScoreCap, ScoreScale, Streams,
    WindowRope, WindowRule, WindowSize,
};
use crate::arch::stream_parts::{LAUREL, LAYER_INPUT, LAYER_INPUTS, PREDICTED_ENDS, PREDICTIONS};
use crate::arch::{Activation, Arch, Checkpoint, Fixed, HeadDim, Key, KvHeads, RopeScaling, SpacePrefix, TokenRule};

/// `gemma`.
pub const GEMMA: Arch = Arch {
    name: "gemma",
    models: "Gemma 1, CodeGemma",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule::PARTIAL,
    attention: Attention { scale: ScoreScale::OnQueries(None), ..Attention::USUAL },
    feed_forward: FeedForward { activation: Activation::Gelu, ..Arch::DENSE.feed_forward },
    embedding_scale: EmbeddingScale::RootOfWidth,
    checkpoints: &[&Checkpoint {
        classes: &["GemmaForCausalLM"],
        activations: &["gelu_pytorch_tanh", "gelu"],
        kv_heads: KvHeads::StatedOr(16),
        keys: KEYS,
        // meant for CodeGemma
        token_rules: &[TokenRule { vocab: None, eot: Some(107), add_bos: None }],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};

/// The common part of the first two checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint {
    activations: &["gelu_pytorch_tanh"],
    norms_plus_one: true,
    tied: true,
    head_dim: HeadDim::Fixed(256),
    context: 8192,
    rope_scaling: RopeScaling::None,
    space_prefix: SpacePrefix::Never,
    ..Checkpoint::USUAL
};

const KEYS: &[Key] = &[
    Key::Context,
    Key::Embedding,
    Key::Blocks,
    Key::FeedForward,
    Key::Heads,
    Key::KvHeads,
    Key::RmsEpsilon,
    Key::HeadSizes,
    Key::FileType,
];

/// `gemma2`.
pub const GEMMA2: Arch = Arch {
    name: "gemma2",
    models: "Gemma 2",
    block: &[ATTN_NORM, QKV, ATTN_OUT, ATTN_POST_NORM, PRE_FFN_NORM, GATED_FFN, FFN_POST_NORM, QKV_BIAS_OPTIONAL],
    window: Some(WindowRule { size: WindowSize::KeyOr(4096), rope: WindowRope::KEYED, ..WindowRule::every(2) }),
    attention: Attention { scale: ScoreScale::OnQueries(Some(46)), softcap: ScoreCap::Key(50.0), ..Attention::USUAL },
    output: Output { softcap: LogitCap::KeyOr(30.0), ..Arch::DENSE.output },
    checkpoints: &[&Checkpoint {
        classes: &["Gemma2ForCausalLM"],
        kv_heads: KvHeads::StatedOr(4),
        keys: KEYS,
        more_keys: &[
            Key::Number("attn_logit_softcapping", "attn_logit_softcapping", 50.0),
            Key::Number("final_logit_softcapping", "final_logit_softcapping", 30.0),
            Key::Window(4096),
        ],
        ..CHECKPOINT
    }],
    ..GEMMA
};

/// `gemma3`.
pub const GEMMA3: Arch = Arch {
    name: "gemma3",
    models: "Gemma 3 (text)",
    ends: Arch::DENSE.ends,
    block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        ATTN_POST_NORM,
        PRE_FFN_NORM,
        GATED_FFN,
        FFN_POST_NORM,
        QKV_BIAS_OPTIONAL,
    ],
    rope: RopeRule { yarn: false, ..RopeRule::PARTIAL },
    window: Some(WindowRule { rope: WindowRope::OWN, ..WindowRule::every(6) }),
    attention: Attention { scale: ScoreScale::OnQueries(Some(62)), ..Attention::USUAL },
    output: Output { softcap: LogitCap::KeyOr(0.0), ..Arch::DENSE.output },
    // layers of embedding models
    ignored: &["dense_2.weight", "dense_3.weight"],
    checkpoints: &[&Checkpoint {
        classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
        activations: &["gelu_pytorch_tanh"],
        norms_plus_one: true,
        padded_embedding: true,
        tied: true,
        vocab: Some(262_208),
        heads: Some(8),
        kv_heads: KvHeads::StatedOr(4),
        head_dim: HeadDim::Fixed(256),
        context: 131_072,
        rope_theta: 1_000_000.0,
        fixed: &[("attn_logit_softcapping", Fixed::Unset)],
        more_keys: &[Key::Number("final_logit_softcapping", "final_logit_softcapping", 0.0), Key::Window(4096)],
        space_prefix: SpacePrefix::Never,
        ..Checkpoint::USUAL
    }],
    ..GEMMA
};

/// `gemma3n`.
pub const GEMMA3N: Arch = Arch {
    name: "gemma3n",
    models: "Gemma 3n E2B, E4B (text)",
    ends: &[ENDS, OUTPUT_OR_TIED, PREDICTED_ENDS, LAYER_INPUTS],
    block: &[
        PREDICTIONS,
        ATTN_NORM,
        LAUREL,
        QKV,
        HEAD_NORMS,
        PLAIN_VALUE_NORM,
        ATTN_OUT,
        ATTN_POST_NORM,
        PRE_FFN_NORM,
        GATED_FFN,
        FFN_POST_NORM,
        LAYER_INPUT,
    ],
    streams: Streams::Predicted,
    layer_inputs: LayerInputs::Fixed(256),
    window: Some(WindowRule { rope: WindowRope::OWN, ..WindowRule::every(5) }),
    attention: Attention { scale: ScoreScale::One, shared_from: Some(20), ..Attention::USUAL },
    feed_forward: FeedForward { cutoff: Some((10, 1.644_853_4)), ..GEMMA.feed_forward },
    output: Output { softcap: LogitCap::Fixed(30.0), ..Arch::DENSE.output },
    // keys and values of blocks that attend to those of others
    ignored: &["attn_k.weight", "attn_v.weight", "attn_k_norm.weight"],
    steered: false,
    checkpoints: &[],
    ..GEMMA3
};
