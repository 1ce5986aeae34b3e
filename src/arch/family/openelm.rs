//! OpenELM: later layers have more heads and are wider.

use crate::arch::factors::ATTN_OUT_SCALE;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, HEAD_NORMS, QKV};
use crate::arch::rules::{Attention, FeedForward, RopeRule};
use crate::arch::{Arch, Checkpoint, Fixed, Fused, Key, KvHeads, Width};

/// `openelm`.
pub const OPENELM: Arch = Arch {
    name: "openelm",
    models: "OpenELM",
    ends: &[ENDS],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM, GATED_FFN],
    attention: Attention { heads_by_layer: true, ..Attention::USUAL },
    rope: RopeRule::PARTIAL,
    feed_forward: FeedForward { by_layer: true, ..Arch::DENSE.feed_forward },
    scaled: ATTN_OUT_SCALE,
    checkpoints: &[&Checkpoint {
        classes: &["OpenELMForCausalLM"],
        root: "transformer",
        tied: true,
        heads: Some(1),
        kv_heads: KvHeads::One,
        width: Width::StatedIfAny,
        context_names: &["max_context_length"],
        rope_names: &["rope_freq_constant"],
        fused: Some(Fused::InOrder),
        fixed: &[
            ("activation_fn_name", Fixed::Text("swish")),
            ("ffn_with_glu", Fixed::True),
            ("normalization_layer_name", Fixed::Text("rms_norm")),
            ("normalize_qk_projections", Fixed::True),
            ("share_input_output_layers", Fixed::True),
        ],
        names: &[
            ("token_embeddings.weight", &["token_embd.weight"]),
            ("attn_norm.weight", &["attn_norm.weight"]),
            ("attn.qkv_proj.weight", &["attn_qkv.weight"]),
            ("attn.q_norm.weight", &["attn_q_norm.weight"]),
            ("attn.k_norm.weight", &["attn_k_norm.weight"]),
            ("attn.out_proj.weight", &["attn_output.weight"]),
            ("ffn_norm.weight", &["ffn_norm.weight"]),
            ("ffn.proj_1.weight", &["ffn_gate.weight", "ffn_up.weight"]),
            ("ffn.proj_2.weight", &["ffn_down.weight"]),
        ],
        keys: &[
            Key::Blocks,
            Key::Context,
            Key::Embedding,
            Key::WidthsOf("ffn_multipliers", "ffn_dim_divisor"),
            Key::Numbers("num_query_heads", "attention.head_count"),
            Key::Numbers("num_kv_heads", "attention.head_count_kv"),
            Key::RopeBase,
            Key::ConstantNumber("attention.layer_norm_rms_epsilon", 1e-6),
            Key::RopeDimensions,
            Key::HeadSizes,
            Key::FileType,
        ],
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};
