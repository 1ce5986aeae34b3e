//! Qwen 4: Gated DeltaNet in most blocks, attention with gates in the others, to blocks of positions that an indexer
//! chooses; several residual streams that are read through gates, and embeddings of n-grams that one block adds to
//! them. In sequences in which the indexer chooses all, its tensors are of no use.

use super::qwen::EXPERT_NAMES;
use super::qwen_delta::{QWEN35MOE, TURNED};
use crate::arch::expert_parts::{EXPERTS_OR_FUSED, SHARED, SHARED_GATE};
use crate::arch::joined::joined;
use crate::arch::parts::{ATTN_OUT, GATED_QKV, HEAD_NORMS, OUTPUT_OR_TIED, beside};
use crate::arch::recurrent_parts::{DELTA, DELTA_STEPS};
use crate::arch::rules::{Attention, Mixing, Recurrence, Streams};
use crate::arch::stream_parts::{GATED_CONNECTIONS, GATED_ENDS, NGRAMS};
use crate::arch::tensor::Role::{ByRows, Norm};
use crate::arch::{Arch, Checkpoint, Key, Step};

/// Names of what its blocks have beside those of Qwen 3.5.
const NAMES: &[(&str, &[&str])] = &[
    ("attn_hyper_connection.hc_norm.weight", &["hc_attn_norm.weight"]),
    ("attn_hyper_connection.input_mix_weight_down.weight", &["hc_attn_down.weight"]),
    ("attn_hyper_connection.input_mix_weight_up.weight", &["hc_attn_up.weight"]),
    ("attn_hyper_connection.block_inject_weight.weight", &["hc_attn_inject.weight"]),
    ("mlp_hyper_connection.hc_norm.weight", &["hc_ffn_norm.weight"]),
    ("mlp_hyper_connection.input_mix_weight_down.weight", &["hc_ffn_down.weight"]),
    ("mlp_hyper_connection.input_mix_weight_up.weight", &["hc_ffn_up.weight"]),
    ("mlp_hyper_connection.block_inject_weight.weight", &["hc_ffn_inject.weight"]),
    ("hyper_connection_mixer.hc_norm.weight", &["output_hc_norm.weight"]),
    ("hyper_connection_mixer.input_mix_weight_down.weight", &["output_hc_down.weight"]),
    ("hyper_connection_mixer.input_mix_weight_up.weight", &["output_hc_up.weight"]),
    ("ple.key_proj.weight", &["ple_key.weight"]),
    ("ple.value_proj.weight", &["ple_value.weight"]),
    ("ple.norm_key.weight", &["ple_norm_key.weight"]),
    ("ple.norm_query.weight", &["ple_norm_query.weight"]),
    ("ple.norm_conv.weight", &["ple_norm_conv.weight"]),
    ("ple.conv1d.weight", &["ple_conv1d.weight"]),
    ("self_attn.indexer.index_qk_proj.weight", &["indexer.q_proj.weight", "indexer.k_proj.weight"]),
];

/// `qwen4exp`.
pub const QWEN4EXP: Arch = Arch {
    name: "qwen4exp",
    models: "Qwen 4 (experimental)",
    ends: &[GATED_ENDS, OUTPUT_OR_TIED],
    expert_block: &[
        GATED_CONNECTIONS,
        NGRAMS,
        GATED_QKV,
        HEAD_NORMS,
        ATTN_OUT,
        DELTA,
        DELTA_STEPS,
        EXPERTS_OR_FUSED,
        SHARED,
        SHARED_GATE,
    ],
    streams: Streams::Gated,
    ngrams: true,
    mixing: Mixing::ByPattern(Recurrence::DeltaSigmoid),
    attention: Attention { indexed: true, ..QWEN35MOE.attention },
    ignored: &[
        "indexer.q_proj.weight",
        "indexer.k_proj.weight",
        "indexer.q_norm.weight",
        "indexer.k_norm.weight",
        // the graph adds none
        "attn_q.bias",
        "attn_k.bias",
        "attn_v.bias",
    ],
    steered: false,
    checkpoints: &[&Checkpoint {
        classes: &["Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM"],
        names: joined!(EXPERT_NAMES, NAMES),
        beside: &[
            beside("", "indexer.q_proj.weight", ByRows),
            beside("", "indexer.k_proj.weight", ByRows),
            beside("self_attn.indexer.q_layernorm.weight", "indexer.q_norm.weight", Norm),
            beside("self_attn.indexer.k_layernorm.weight", "indexer.k_norm.weight", Norm),
        ],
        steps: joined!(
            TURNED.steps,
            &[
                // the reference's rule for vectors goes by names, which these have not
                ("ple.norm_key.weight", &[Step::AsMatrix]),
                ("ple.norm_query.weight", &[Step::AsMatrix]),
                ("ple.norm_conv.weight", &[Step::AsMatrix]),
                ("ple.conv1d.weight", &[Step::AsMatrix]),
                ("self_attn.indexer.index_qk_proj.weight", &[Step::SplitAt(["indexer_n_heads", "indexer_head_dim"])]),
            ],
        ),
        last_keys: &[
            Key::Whole(&["hc_count"], "hyper_connection.count"),
            Key::Whole(&["hc_lowrank"], "hyper_connection.low_rank"),
            Key::Whole(&["indexer_n_heads"], "attention.indexer.head_count"),
            Key::Whole(&["indexer_head_dim"], "attention.indexer.key_length"),
            Key::Whole(&["indexer_budget"], "attention.indexer.top_k"),
            Key::InKind("full_attention", "indexer_compress_ratio", "attention.compress_ratios"),
            Key::Ngrams,
        ],
        ..TURNED
    }],
    ..QWEN35MOE
};
