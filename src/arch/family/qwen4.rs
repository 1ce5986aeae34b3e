//! Qwen 4: Gated DeltaNet in most blocks, attention with gates in the others, to blocks of positions that an indexer
//! chooses; several residual streams that are read through gates, and embeddings of n-grams that one block adds to
//! them. In sequences in which the indexer chooses all, its tensors are of no use.

use super::qwen_delta::QWEN35MOE;
use crate::arch::Arch;
use crate::arch::expert_parts::{EXPERTS_OR_FUSED, SHARED, SHARED_GATE};
use crate::arch::parts::{ATTN_OUT, GATED_QKV, HEAD_NORMS, OUTPUT_OR_TIED};
use crate::arch::recurrent_parts::{DELTA, DELTA_STEPS};
use crate::arch::rules::{Attention, Mixing, Recurrence, Streams};
use crate::arch::stream_parts::{GATED_CONNECTIONS, GATED_ENDS, NGRAMS};

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
    checkpoints: &[],
    ..QWEN35MOE
};
