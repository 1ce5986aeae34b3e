//! BERT and its kin: attention in both directions, norms of the sums behind both sublayers, vectors of texts and ranks.
//! Positions are learned (BERT), RoPE's (Nomic, Jina 3) or ALiBi's (Jina 2).

use crate::arch::encoder_parts::{
    ANY_FFN, NORMS_OF_SUMS, ONE_RANK_HEAD, PLAIN_EXPERTS, RANK_HEAD, SECOND_NORM_OF_SUM, TOKEN_TYPES,
    TOKEN_TYPES_OPTIONAL,
};
use crate::arch::parts::{
    ATTN_OUT, ATTN_OUT_BIAS, ATTN_OUT_BIAS_OPTIONAL, GATED_FFN, PLAIN_FFN, PLAIN_FFN_BIAS_OPTIONAL, POSITIONS,
    QK_NORMS_OPTIONAL, QKV, QKV_BIAS_OPTIONAL, TOKEN_NORM, TOKENS,
};
use crate::arch::rules::{
    Alibi, Attention, ExpertLayers, ExpertRule, FeedForward, NormKind, Normalize, Residual, RopeRule,
};
use crate::arch::{Activation, Arch};

/// `bert`.
pub const BERT: Arch = Arch {
    name: "bert",
    models: "BERT, BGE, E5, MiniLM, GTE, Arctic Embed; with a head BGE reranker and cross-encoders; XLM-RoBERTa",
    ends: &[TOKENS, TOKEN_TYPES_OPTIONAL, POSITIONS, TOKEN_NORM, RANK_HEAD],
    block: &[
        QKV,
        ATTN_OUT,
        NORMS_OF_SUMS,
        PLAIN_FFN,
        QKV_BIAS_OPTIONAL,
        ATTN_OUT_BIAS_OPTIONAL,
        PLAIN_FFN_BIAS_OPTIONAL,
    ],
    norm: NormKind::Layer,
    attention: Attention { both_ways: true, ..Attention::USUAL },
    rope: RopeRule::NONE,
    feed_forward: FeedForward { activation: Activation::Gelu, ..Arch::DENSE.feed_forward },
    residual: Residual::NormedSums,
    vectors: true,
    steered: false,
    ..Arch::DENSE
};

/// `nomic-bert`: RoPE and a gate. Biases of the feed-forward network are loaded and not used.
pub const NOMIC_BERT: Arch = Arch {
    name: "nomic-bert",
    models: "Nomic Embed 1 and 1.5, CodeRankEmbed",
    ends: &[TOKENS, TOKEN_TYPES_OPTIONAL, TOKEN_NORM],
    block: &[QKV, ATTN_OUT, NORMS_OF_SUMS, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    rope: RopeRule::PARTIAL,
    feed_forward: Arch::DENSE.feed_forward,
    ignored: &["ffn_up.bias", "ffn_down.bias"],
    ..BERT
};

/// `nomic-bert-moe`: experts without gates in some blocks.
pub const NOMIC_BERT_MOE: Arch = Arch {
    name: "nomic-bert-moe",
    models: "Nomic Embed 2",
    ends: NOMIC_BERT.ends,
    expert_block: &[QKV, ATTN_OUT, NORMS_OF_SUMS, PLAIN_EXPERTS, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    rope: RopeRule::PARTIAL,
    experts: ExpertRule {
        normalize: Normalize::Never,
        scale: true,
        layers: ExpertLayers::SecondOfEvery,
        ..ExpertRule::USUAL
    },
    ..BERT
};

/// `jina-bert-v2`: ALiBi; a gate of its own, in the up projection or none.
pub const JINA_BERT_V2: Arch = Arch {
    name: "jina-bert-v2",
    models: "Jina Embeddings 2, Jina Reranker 1",
    ends: &[TOKENS, TOKEN_TYPES, TOKEN_NORM, ONE_RANK_HEAD],
    block: &[
        QKV,
        QK_NORMS_OPTIONAL,
        ATTN_OUT,
        ATTN_OUT_BIAS,
        NORMS_OF_SUMS,
        SECOND_NORM_OF_SUM,
        ANY_FFN,
        QKV_BIAS_OPTIONAL,
    ],
    attention: Attention { alibi: Alibi::Fixed(8.0), ..BERT.attention },
    ..BERT
};

/// `jina-bert-v3`: RoPE.
pub const JINA_BERT_V3: Arch =
    Arch { name: "jina-bert-v3", models: "Jina Embeddings 3", ends: NOMIC_BERT.ends, rope: RopeRule::PARTIAL, ..BERT };
