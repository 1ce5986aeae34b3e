//! HRM-Text: two stacks of blocks that run in cycles, and norms without gains.

use crate::arch::parts::{
    ATTN_GATE, ATTN_OUT, GATED_FFN, LOW_STATE, OUTPUT_OR_TIED, PLAIN_ATTN_NORM, PLAIN_ENDS, PLAIN_FFN_NORM, QKV,
    QKV_BIAS_OPTIONAL,
};
use crate::arch::rules::{EmbeddingScale, RopeRule};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, KvHeads, Tokenizer};

/// `hrm_text`.
pub const HRM_TEXT: Arch = Arch {
    name: "hrm_text",
    models: "HRM-Text, Mimir 1B",
    ends: &[PLAIN_ENDS, OUTPUT_OR_TIED, LOW_STATE],
    block: &[PLAIN_ATTN_NORM, QKV, ATTN_GATE, ATTN_OUT, PLAIN_FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    cycles: true,
    rope: RopeRule::PARTIAL,
    embedding_scale: EmbeddingScale::Key(0.0),
    checkpoints: &[&Checkpoint {
        classes: &["HrmTextForCausalLM"],
        stacks: &["L_module", "H_module"],
        names: &[
            ("z_L_init", &["hrm.z_l_init"]),
            ("attn.gqkv_proj.weight", &["attn_gate.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight"]),
            ("attn.o_proj.weight", &["attn_output.weight"]),
            ("mlp.gate_up_proj.weight", &["ffn_gate.weight", "ffn_up.weight"]),
        ],
        kv_heads: KvHeads::StatedAlone,
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::RopeDimensions,
            Key::Fraction(&["embedding_scale"], "embedding_scale"),
            Key::WholeOr(&["num_layers_per_stack", "num_hidden_layers"], "hrm.layers_per_stack", 0),
            Key::Whole(&["H_cycles"], "hrm.h_cycles"),
            Key::Whole(&["L_cycles"], "hrm.l_cycles"),
            Key::Flag("prefix_lm", "hrm.prefix_lm", false),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
