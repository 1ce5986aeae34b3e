//! Decoders' blocks that attend in both directions and make vectors of texts: Llama Embed, EmbeddingGemma, EuroBERT,
//! NeoBERT, ModernBERT, T5's encoder.

use super::gemma::GEMMA3;
use super::llama::LLAMA;
use crate::arch::encoder_parts::{
    ATTN_NORM_OPTIONAL, ENCODER_NORM, NORMED_RANK_HEAD, PROJECTIONS, RANK_HEAD, T5_ATTENTION, T5_FFN, TOKEN_NORM_BARE,
};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, FUSED_FFN, GATED_FFN, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS,
    ROPE_FACTORS_BY_CONTEXT, TOKENS,
};
use crate::arch::rules::{Attention, FeedForward, NormKind, RopeRule, ScoreScale, WindowRope, WindowRule};
use crate::arch::{Activation, Arch, Pooling};

/// `llama-embed`.
pub const LLAMA_EMBED: Arch = Arch {
    name: "llama-embed",
    models: "Llama Embed Nemotron",
    ends: &[ENDS, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT],
    attention: Attention { both_ways: true, scale: ScoreScale::Key, ..Attention::USUAL },
    vectors: true,
    ignored: OUTPUT,
    checkpoints: &[],
    ..LLAMA
};

/// The output matrix, which makes no vectors.
const OUTPUT: &[&str] = &["output.weight"];

/// `gemma-embedding`: windows reach as far ahead as back.
pub const GEMMA_EMBEDDING: Arch = Arch {
    name: "gemma-embedding",
    models: "EmbeddingGemma",
    ends: &[ENDS, PROJECTIONS],
    attention: Attention { both_ways: true, scale: ScoreScale::OnQueries(None), ..Attention::USUAL },
    output: Arch::DENSE.output,
    vectors: true,
    ignored: OUTPUT,
    checkpoints: &[],
    ..GEMMA3
};

/// The rules of encoders with decoders' blocks.
const ENCODER: Arch =
    Arch { attention: Attention { both_ways: true, ..Attention::USUAL }, vectors: true, steered: false, ..Arch::DENSE };

/// `eurobert`.
pub const EUROBERT: Arch = Arch {
    name: "eurobert",
    models: "EuroBERT, Jina Embeddings 5",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule::PARTIAL,
    ..ENCODER
};

/// `neo-bert`.
pub const NEO_BERT: Arch = Arch {
    name: "neo-bert",
    models: "NeoBERT",
    ends: &[TOKENS, ENCODER_NORM, RANK_HEAD],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, FUSED_FFN],
    rope: RopeRule { partial: true, ..RopeRule::ADJACENT },
    ..ENCODER
};

/// `modern-bert`: windows, as far ahead as back, in all but the first of three layers; the first attention reads the
/// norm of the embeddings.
pub const MODERN_BERT: Arch = Arch {
    name: "modern-bert",
    models: "ModernBERT, GTE ModernBERT and its reranker, Granite Embedding R2",
    ends: &[ENDS, TOKEN_NORM_BARE, NORMED_RANK_HEAD],
    block: &[ATTN_NORM_OPTIONAL, QKV, ATTN_OUT, FFN_NORM, FUSED_FFN],
    norm: NormKind::Layer,
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule { global_first: true, rope: WindowRope::OWN, ..WindowRule::every(3) }),
    feed_forward: FeedForward { activation: Activation::Gelu, named: true, ..Arch::DENSE.feed_forward },
    rank_pooling: Some(Pooling::Mean),
    rank_activation: Activation::Gelu,
    ..ENCODER
};

/// `t5encoder`: biases by distance stand for positions.
pub const T5ENCODER: Arch = Arch {
    name: "t5encoder",
    models: "encoders of T5 and Flan-T5",
    ends: &[TOKENS, ENCODER_NORM],
    block: &[T5_ATTENTION, T5_FFN],
    attention: Attention { relative: true, scale: ScoreScale::One, ..ENCODER.attention },
    rope: RopeRule::NONE,
    feed_forward: FeedForward {
        activation: Activation::Gelu,
        ungated: Some(Activation::Relu),
        ..Arch::DENSE.feed_forward
    },
    scaled: &[],
    ignored: OUTPUT,
    ..ENCODER
};
