//! Decoders' blocks that attend in both directions and make vectors of texts: Llama Embed, EmbeddingGemma, EuroBERT,
//! NeoBERT, ModernBERT.

use super::gemma::{self, GEMMA3};
use super::llama::{self, LLAMA};
use crate::arch::encoder_parts::{
    ATTN_NORM_OPTIONAL, ENCODER_NORM, NORMED_RANK_HEAD, PROJECTIONS, RANK_HEAD, TOKEN_NORM_BARE,
};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, FUSED_FFN, GATED_FFN, QKV, QKV_BIAS_OPTIONAL, ROPE_FACTORS,
    ROPE_FACTORS_BY_CONTEXT, TOKENS,
};
use crate::arch::rules::{Attention, FeedForward, NormKind, RopeRule, ScoreScale, WindowRope, WindowRule};
use crate::arch::{
    Activation, Arch, Checkpoint, Fused, HeadDim, Key, KvHeads, Name, Pooling, TokenKey, Tokenizer, Width,
};

/// `llama-embed`.
pub const LLAMA_EMBED: Arch = Arch {
    name: "llama-embed",
    models: "Llama Embed Nemotron",
    ends: &[ENDS, ROPE_FACTORS, ROPE_FACTORS_BY_CONTEXT],
    attention: Attention { both_ways: true, scale: ScoreScale::Key, ..Attention::USUAL },
    vectors: true,
    ignored: OUTPUT,
    checkpoints: &[&Checkpoint {
        classes: &["LlamaBidirectionalModel"],
        head_dim: HeadDim::Implied,
        ..llama::CHECKPOINT
    }],
    ..LLAMA
};

/// The output matrix, which makes no vectors.
pub(super) const OUTPUT: &[&str] = &["output.weight"];

/// `gemma-embedding`: windows reach as far ahead as back.
pub const GEMMA_EMBEDDING: Arch = Arch {
    name: "gemma-embedding",
    models: "EmbeddingGemma",
    ends: &[ENDS, PROJECTIONS],
    attention: Attention { both_ways: true, scale: ScoreScale::OnQueries(None), ..Attention::USUAL },
    output: Arch::DENSE.output,
    vectors: true,
    ignored: OUTPUT,
    checkpoints: &[&Checkpoint {
        classes: &["Gemma3TextModel"],
        names: &[("dense_2.weight", &["dense_2.weight"]), ("dense_3.weight", &["dense_3.weight"])],
        more_keys: &[
            Key::Number("final_logit_softcapping", "final_logit_softcapping", 0.0),
            Key::Whole(&["sliding_window"], "attention.sliding_window"),
            Key::Dense,
            Key::Pooling,
        ],
        ..gemma::CHECKPOINT_3
    }],
    ..GEMMA3
};

/// The rules of encoders with decoders' blocks.
pub(super) const ENCODER: Arch =
    Arch { attention: Attention { both_ways: true, ..Attention::USUAL }, vectors: true, steered: false, ..Arch::DENSE };

/// `eurobert`.
pub const EUROBERT: Arch = Arch {
    name: "eurobert",
    models: "EuroBERT, Jina Embeddings 5",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    rope: RopeRule::PARTIAL,
    checkpoints: &[&Checkpoint {
        classes: &["EuroBertModel", "JinaEmbeddingsV5Model"],
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::ConstantFlag("attention.causal", false),
            Key::Text("rope.scaling.type", "none"),
            Key::Pooling,
        ],
        first_token_keys: &[TokenKey::Flag("add_bos_token", false)],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..ENCODER
};

/// `neo-bert`.
pub const NEO_BERT: Arch = Arch {
    name: "neo-bert",
    models: "NeoBERT",
    ends: &[TOKENS, ENCODER_NORM, RANK_HEAD],
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, FUSED_FFN],
    rope: RopeRule { partial: true, ..RopeRule::ADJACENT },
    checkpoints: &[&Checkpoint {
        classes: &["NeoBERT", "NeoBERTLMHead", "NeoBERTForSequenceClassification"],
        activations: &["SwiGLU", "swiglu", "silu"],
        blocks: "transformer_encoder",
        names: &[
            ("encoder.weight", &["token_embd.weight"]),
            ("layer_norm.weight", &["enc.output_norm.weight"]),
            ("attention_norm.weight", &["attn_norm.weight"]),
            ("qkv.weight", &["attn_qkv.weight"]),
            ("wo.weight", &["attn_output.weight"]),
            ("ffn_norm.weight", &["ffn_norm.weight"]),
            ("ffn.w12.weight", &["ffn_up.weight"]),
            ("ffn.w3.weight", &["ffn_down.weight"]),
            ("dense.weight", &["cls.weight"]),
            ("dense.bias", &["cls.bias"]),
        ],
        more_names: CLASSES,
        left_out: &["decoder."],
        fused: Some(Fused::InOrder),
        kv_heads: KvHeads::StatedAlone,
        head_dim: HeadDim::Implied,
        width: Width::TwoThirdsStated,
        context_names: &["max_position_embeddings", "max_length"],
        rope_theta: 0.0,
        more_keys: &[
            Key::ConstantFlag("attention.causal", false),
            Key::Pooling,
            Key::NamedPooling("classifier_pooling", "classifier.pooling_type"),
            Key::Labels,
            Key::ConstantNumber("rope.freq_base", 10000.0),
            Key::Text("rope.scaling.type", "none"),
            Key::Constant("pooling_type", 2),
        ],
        first_token_keys: TOKEN_TYPES,
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..ENCODER
};

/// The number of kinds of tokens.
pub(super) const TOKEN_TYPES: &[TokenKey] = &[TokenKey::StatedOr("type_vocab_size", "token_type_count", 1)];

/// Names of the last layer of a ranking model's head, and of its bias.
pub(super) const CLASSES: &[Name] =
    &[("classifier.weight", &["cls.output.weight"]), ("classifier.bias", &["cls.output.bias"])];

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
    checkpoints: &[&Checkpoint {
        classes: &["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"],
        left_out: &["decoder."],
        activations: &["gelu", "silu"],
        names: &[
            ("embeddings.tok_embeddings.weight", &["token_embd.weight"]),
            ("embeddings.norm.weight", &["token_embd_norm.weight"]),
            ("final_norm.weight", &["output_norm.weight"]),
            ("head.dense.weight", &["cls.weight"]),
            ("head.norm.weight", &["cls.norm.weight"]),
            ("attn_norm.weight", &["attn_norm.weight"]),
            ("attn.Wqkv.weight", &["attn_qkv.weight"]),
            ("attn.Wo.weight", &["attn_output.weight"]),
            ("mlp_norm.weight", &["ffn_norm.weight"]),
            ("mlp.Wi.weight", &["ffn_up.weight"]),
            ("mlp.Wo.weight", &["ffn_down.weight"]),
        ],
        more_names: CLASSES,
        fused: Some(Fused::InOrder),
        kv_heads: KvHeads::StatedAlone,
        head_dim: HeadDim::Implied,
        rms_eps: Some(1e-5),
        layer_eps: Some(1e-5),
        rope_theta: 160_000.0,
        more_keys: &[
            Key::ConstantFlag("attention.causal", false),
            Key::Pooling,
            Key::NamedPooling("classifier_pooling", "classifier.pooling_type"),
            Key::Labels,
            Key::Whole(&["local_attention"], "attention.sliding_window"),
            Key::Whole(&["global_attn_every_n_layers"], "attention.sliding_window_pattern"),
            Key::Text("rope.scaling.type", "none"),
            Key::VocabSize,
            Key::Copied("hidden_activation", "hidden_activation"),
        ],
        first_token_keys: &[
            TokenKey::Flag("add_bos_token", true),
            TokenKey::Flag("add_eos_token", true),
            TokenKey::Flag("add_sep_token", true),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..ENCODER
};
