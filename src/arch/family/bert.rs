//! BERT and its kin: attention in both directions, norms of the sums behind both sublayers, vectors of texts and ranks.
//! Positions are learned (BERT), RoPE's (Nomic, Jina 3) or ALiBi's (Jina 2).

use super::encoder::{CLASSES, TOKEN_TYPES as KINDS};
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
use crate::arch::{Activation, Arch, Checkpoint, Fixed, Fused, Key, KvHeads, Name, Step, TokenKey, Tokenizer};

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
    checkpoints: &[
        &Checkpoint {
            classes: &["BertModel", "BertForMaskedLM", "BertForSequenceClassification"],
            root: "bert",
            blocks: "encoder.layer",
            names: BERT_NAMES,
            left_out: BERT_LEFT_OUT,
            layer_eps: Some(1e-12),
            more_keys: KEYS,
            first_token_keys: KINDS,
            ..CHECKPOINT
        },
        &Checkpoint { classes: &["RobertaModel", "RobertaForSequenceClassification"], ..ROBERTA },
        &Checkpoint {
            classes: &["XLMRobertaModel", "XLMRobertaForSequenceClassification"],
            tokenizer: Tokenizer::XlmRoberta,
            token_keys: &[],
            ..ROBERTA
        },
        &Checkpoint {
            classes: &["DistilBertModel", "DistilBertForMaskedLM"],
            root: "distilbert",
            blocks: "transformer.layer",
            names: DISTIL_NAMES,
            left_out: &["vocab_"],
            width_names: &["hidden_dim"],
            keys: &[
                Key::ConstantNumber("attention.layer_norm_epsilon", 1e-12),
                Key::Blocks,
                Key::Context,
                Key::Embedding,
                Key::FeedForward,
                Key::Heads,
                Key::FileType,
            ],
            more_keys: KEYS,
            first_token_keys: KINDS,
            ..CHECKPOINT
        },
    ],
    ..Arch::DENSE
};

/// The common part of BERT's checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint {
    activations: &["gelu"],
    more_names: CLASSES,
    kv_heads: KvHeads::StatedAlone,
    context: 512,
    rope_theta: 0.0,
    ..Checkpoint::LAYER_NORMS
};

/// The checkpoints of RoBERTa: positions are counted from behind that of padding, and heads have two layers.
const ROBERTA: Checkpoint = Checkpoint {
    root: "roberta",
    blocks: "encoder.layer",
    names: BERT_NAMES,
    more_names: &[
        ("classifier.dense.weight", &["cls.weight"]),
        ("classifier.dense.bias", &["cls.bias"]),
        ("classifier.out_proj.weight", &["cls.output.weight"]),
        ("classifier.out_proj.bias", &["cls.output.bias"]),
    ],
    left_out: &["embeddings.position_ids", "pooler.", "roberta.embeddings.position_ids", "roberta.pooler.", "lm_head."],
    steps: &[("embeddings.position_embeddings.weight", &[Step::Behind(2)])],
    positions_less: 2,
    fixed: &[("pad_token_id", Fixed::Number(1.0))],
    more_keys: KEYS,
    token_keys: KINDS,
    ..CHECKPOINT
};

/// Beginnings of names that make no vectors.
const BERT_LEFT_OUT: &[&str] = &[
    "embeddings.position_ids",
    "pooler.",
    "bert.embeddings.position_ids",
    "bert.pooler.",
    "cls.predictions",
    "cls.seq_relationship",
];

/// The checkpoints of Jina's models.
const JINA: Checkpoint =
    Checkpoint { root: "bert", blocks: "encoder.layer", layer_eps: Some(1e-12), more_keys: KEYS, ..CHECKPOINT };

/// The checkpoints of Nomic's models.
const NOMIC: Checkpoint = Checkpoint {
    root: "bert",
    blocks: "encoder.layers",
    names: NOMIC_NAMES,
    more_names: &[],
    left_out: BERT_LEFT_OUT,
    fused: Some(Fused::InOrder),
    context_names: &["n_positions"],
    rope_names: &["rotary_emb_base"],
    keys: &[
        Key::Blocks,
        Key::TrainedContext("n_positions", "max_trained_positions", &[[8192, 2048, 2048], [2048, 2048, 512]]),
        Key::Embedding,
        Key::FeedForward,
        Key::Heads,
        Key::RopeBase,
        Key::LayerEpsilon,
        Key::Experts,
        Key::FileType,
    ],
    more_keys: KEYS,
    first_token_keys: KINDS,
    ..CHECKPOINT
};

/// Values that all of their checkpoints have.
macro_rules! nomic_fixed {
    ($biases:expr) => {
        &[
            ("causal", Fixed::Unset),
            ("prenorm", Fixed::Unset),
            ("rotary_emb_fraction", Fixed::Number(1.0)),
            ("rotary_emb_interleaved", Fixed::Unset),
            ("rotary_emb_scale_base", Fixed::Unset),
            ("qkv_proj_bias", $biases),
            ("mlp_fc1_bias", $biases),
            ("mlp_fc2_bias", $biases),
        ]
    };
}
const NOMIC_FIXED: &[(&str, Fixed)] = nomic_fixed!(Fixed::Unset);
const NOMIC_MOE_FIXED: &[(&str, Fixed)] = nomic_fixed!(Fixed::True);

const NOMIC_NAMES: &[Name] = &[
    ("embeddings.word_embeddings.weight", &["token_embd.weight"]),
    ("embeddings.token_type_embeddings.weight", &["token_types.weight"]),
    ("emb_ln.weight", &["token_embd_norm.weight"]),
    ("emb_ln.bias", &["token_embd_norm.bias"]),
    ("attn.Wqkv.weight", &["attn_qkv.weight"]),
    ("attn.Wqkv.bias", &["attn_qkv.bias"]),
    ("attn.out_proj.weight", &["attn_output.weight"]),
    ("attn.out_proj.bias", &["attn_output.bias"]),
    ("norm1.weight", &["attn_output_norm.weight"]),
    ("norm1.bias", &["attn_output_norm.bias"]),
    ("mlp.fc11.weight", &["ffn_up.weight"]),
    ("mlp.fc12.weight", &["ffn_gate.weight"]),
    ("mlp.fc1.weight", &["ffn_up.weight"]),
    ("mlp.fc1.bias", &["ffn_up.bias"]),
    ("mlp.fc2.weight", &["ffn_down.weight"]),
    ("mlp.fc2.bias", &["ffn_down.bias"]),
    ("norm2.weight", &["layer_output_norm.weight"]),
    ("norm2.bias", &["layer_output_norm.bias"]),
];

/// Keys that follow the usual ones.
const KEYS: &[Key] = &[
    Key::ConstantFlag("attention.causal", false),
    Key::Pooling,
    Key::NamedPooling("classifier_pooling", "classifier.pooling_type"),
    Key::Labels,
];
const BERT_NAMES: &[Name] = &[
    ("embeddings.word_embeddings.weight", &["token_embd.weight"]),
    ("embeddings.token_type_embeddings.weight", &["token_types.weight"]),
    ("embeddings.position_embeddings.weight", &["position_embd.weight"]),
    ("embeddings.LayerNorm.weight", &["token_embd_norm.weight"]),
    ("embeddings.LayerNorm.bias", &["token_embd_norm.bias"]),
    ("attention.self.query.weight", &["attn_q.weight"]),
    ("attention.self.query.bias", &["attn_q.bias"]),
    ("attention.self.key.weight", &["attn_k.weight"]),
    ("attention.self.key.bias", &["attn_k.bias"]),
    ("attention.self.value.weight", &["attn_v.weight"]),
    ("attention.self.value.bias", &["attn_v.bias"]),
    ("attention.output.dense.weight", &["attn_output.weight"]),
    ("attention.output.dense.bias", &["attn_output.bias"]),
    ("attention.output.LayerNorm.weight", &["attn_output_norm.weight"]),
    ("attention.output.LayerNorm.bias", &["attn_output_norm.bias"]),
    ("intermediate.dense.weight", &["ffn_up.weight"]),
    ("intermediate.dense.bias", &["ffn_up.bias"]),
    ("output.dense.weight", &["ffn_down.weight"]),
    ("output.dense.bias", &["ffn_down.bias"]),
    ("output.LayerNorm.weight", &["layer_output_norm.weight"]),
    ("output.LayerNorm.bias", &["layer_output_norm.bias"]),
];

const DISTIL_NAMES: &[Name] = &[
    ("embeddings.word_embeddings.weight", &["token_embd.weight"]),
    ("embeddings.position_embeddings.weight", &["position_embd.weight"]),
    ("embeddings.LayerNorm.weight", &["token_embd_norm.weight"]),
    ("embeddings.LayerNorm.bias", &["token_embd_norm.bias"]),
    ("attention.q_lin.weight", &["attn_q.weight"]),
    ("attention.q_lin.bias", &["attn_q.bias"]),
    ("attention.k_lin.weight", &["attn_k.weight"]),
    ("attention.k_lin.bias", &["attn_k.bias"]),
    ("attention.v_lin.weight", &["attn_v.weight"]),
    ("attention.v_lin.bias", &["attn_v.bias"]),
    ("attention.out_lin.weight", &["attn_output.weight"]),
    ("attention.out_lin.bias", &["attn_output.bias"]),
    ("sa_layer_norm.weight", &["attn_output_norm.weight"]),
    ("sa_layer_norm.bias", &["attn_output_norm.bias"]),
    ("ffn.lin1.weight", &["ffn_up.weight"]),
    ("ffn.lin1.bias", &["ffn_up.bias"]),
    ("ffn.lin2.weight", &["ffn_down.weight"]),
    ("ffn.lin2.bias", &["ffn_down.bias"]),
    ("output_layer_norm.weight", &["layer_output_norm.weight"]),
    ("output_layer_norm.bias", &["layer_output_norm.bias"]),
];

/// `nomic-bert`: RoPE and a gate. Biases of the feed-forward network are loaded and not used.
pub const NOMIC_BERT: Arch = Arch {
    name: "nomic-bert",
    models: "Nomic Embed 1 and 1.5, CodeRankEmbed",
    ends: &[TOKENS, TOKEN_TYPES_OPTIONAL, TOKEN_NORM],
    block: &[QKV, ATTN_OUT, NORMS_OF_SUMS, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    rope: RopeRule::PARTIAL,
    feed_forward: Arch::DENSE.feed_forward,
    ignored: &["ffn_up.bias", "ffn_down.bias"],
    checkpoints: &[&Checkpoint { classes: &["NomicBertModel"], activations: &["swiglu"], fixed: NOMIC_FIXED, ..NOMIC }],
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
    checkpoints: &[&Checkpoint {
        classes: &["NomicBertModel"],
        activations: &["gelu"],
        tokenizer: Tokenizer::XlmRobertaMasked,
        first_token_keys: &[],
        more_names: &[
            ("mlp.router.layer.weight", &["ffn_gate_inp.weight"]),
            ("mlp.experts.mlp.w1", &["ffn_up_exps.weight"]),
            ("mlp.experts.mlp.w2", &["ffn_down_exps.weight"]),
        ],
        steps: &[
            ("mlp.experts.mlp.w1", &[Step::Reshaped]),
            ("mlp.experts.mlp.w2", &[Step::Reshaped, Step::Transposed]),
        ],
        fixed: NOMIC_MOE_FIXED,
        last_keys: &[
            Key::Whole(&["moe_every_n_layers"], "moe_every_n_layers"),
            Key::Whole(&["moe_top_k"], "expert_used_count"),
        ],
        ..NOMIC
    }],
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
    checkpoints: &[&Checkpoint {
        classes: &["JinaBertModel", "JinaBertForMaskedLM"],
        names: BERT_NAMES,
        more_names: &[
            ("attention.self.layer_norm_q.weight", &["attn_q_norm.weight"]),
            ("attention.self.layer_norm_q.bias", &["attn_q_norm.bias"]),
            ("attention.self.layer_norm_k.weight", &["attn_k_norm.weight"]),
            ("attention.self.layer_norm_k.bias", &["attn_k_norm.bias"]),
            ("layer_norm_1.weight", &["attn_norm_2.weight"]),
            ("layer_norm_1.bias", &["attn_norm_2.bias"]),
            ("layer_norm_2.weight", &["layer_output_norm.weight"]),
            ("layer_norm_2.bias", &["layer_output_norm.bias"]),
            ("mlp.layernorm.weight", &["layer_output_norm.weight"]),
            ("mlp.layernorm.bias", &["layer_output_norm.bias"]),
            ("mlp.gated_layers.weight", &["ffn_up.weight"]),
            ("mlp.up_gated_layer.weight", &["ffn_up.weight"]),
            ("mlp.wo.weight", &["ffn_down.weight"]),
            ("mlp.wo.bias", &["ffn_down.bias"]),
            ("mlp.down_layer.weight", &["ffn_down.weight"]),
            ("mlp.down_layer.bias", &["ffn_down.bias"]),
        ],
        left_out: BERT_LEFT_OUT,
        first_token_keys: &[TokenKey::KindsOfWords("type_vocab_size")],
        token_keys: &[TokenKey::KindsOfOthers(2)],
        ..JINA
    }],
    ..BERT
};

/// `jina-bert-v3`: RoPE.
pub const JINA_BERT_V3: Arch = Arch {
    name: "jina-bert-v3",
    models: "Jina Embeddings 3",
    ends: NOMIC_BERT.ends,
    rope: RopeRule::PARTIAL,
    checkpoints: &[&Checkpoint {
        classes: &["XLMRobertaModel"],
        told_by: Some("lora_adaptations"),
        root: "roberta",
        blocks: "encoder.layers",
        names: NOMIC_NAMES,
        more_names: &[
            ("mixer.Wqkv.weight", &["attn_qkv.weight"]),
            ("mixer.Wqkv.bias", &["attn_qkv.bias"]),
            ("mixer.out_proj.weight", &["attn_output.weight"]),
            ("mixer.out_proj.bias", &["attn_output.bias"]),
        ],
        left_out: &["pooler.", "roberta.pooler."],
        fused: Some(Fused::InOrder),
        positions_less: 2,
        rope_names: &["rotary_emb_base"],
        fixed: &[("pad_token_id", Fixed::Number(1.0))],
        tokenizer: Tokenizer::XlmRoberta,
        ..JINA
    }],
    ..BERT
};
