//! LFM 2: gated convolutions over three positions, and attention in some blocks.

use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, END_NORM_AS_TOKENS, FFN_NORM, GATED_FFN, HEAD_NORMS, OUTPUT_OR_TIED, QKV, QKV_BIAS_OPTIONAL,
    TOKENS,
};
use crate::arch::recurrent_parts::CONVOLUTION;
use crate::arch::rules::{ExpertLayers, ExpertRule, ExpertWidth, GatingRule, Mixing, Recurrence, RopeRule, WindowRule};
use crate::arch::{Arch, Checkpoint, Fixed, HeadDim, Key, Tokenizer};

/// `lfm2`.
pub const LFM2: Arch = Arch {
    name: "lfm2",
    models: "LFM 2 350M to 2.6B",
    ends: &[TOKENS, END_NORM_AS_TOKENS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, CONVOLUTION, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    mixing: Mixing::ByHeads(Recurrence::Convolution),
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule::every(0)),
    ignored: &["dense_2.weight", "dense_2.bias"],
    checkpoints: &[&Checkpoint {
        classes: &["Lfm2ForCausalLM", "LFM2ForCausalLM"],
        fixed: &[("block_auto_adjust_ff_dim", Fixed::Unset)],
        width_names: &["block_ff_dim", "intermediate_size"],
        keys: KEYS,
        more_keys: &[Key::VocabSize, Key::Whole(&["conv_L_cache"], "shortconv.l_cache")],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};

const KEYS: &[Key] = &[
    Key::Blocks,
    Key::Context,
    Key::Embedding,
    Key::FeedForward,
    Key::Heads,
    Key::KvHeadsBut("conv"),
    Key::RopeScaling,
    Key::RopeBase,
    Key::RmsEpsilon,
    Key::Experts,
    Key::ExpertsUsed,
    Key::HeadSizes,
    Key::FileType,
];

/// The common part of both checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint {
    names: &[
        ("embedding_norm.weight", &["token_embd_norm.weight"]),
        ("operator_norm.weight", &["attn_norm.weight"]),
        ("self_attn.q_layernorm.weight", &["attn_q_norm.weight"]),
        ("self_attn.k_layernorm.weight", &["attn_k_norm.weight"]),
        ("self_attn.out_proj.weight", &["attn_output.weight"]),
        ("conv.in_proj.weight", &["shortconv.in_proj.weight"]),
        ("conv.conv.weight", &["shortconv.conv.weight"]),
        ("conv.out_proj.weight", &["shortconv.out_proj.weight"]),
        ("ffn_norm.weight", &["ffn_norm.weight"]),
        ("feed_forward.w1.weight", &["ffn_gate.weight"]),
        ("feed_forward.w2.weight", &["ffn_down.weight"]),
        ("feed_forward.w3.weight", &["ffn_up.weight"]),
    ],
    tied: true,
    head_dim: HeadDim::Implied,
    rms_eps: Some(1e-5),
    rope_theta: 1_000_000.0,
    tokenizer: Tokenizer::Json,
    ..Checkpoint::USUAL
};

/// `lfm2moe`.
pub const LFM2MOE: Arch = Arch {
    name: "lfm2moe",
    models: "LFM 2 8B-A1B, 24B-A2B",
    expert_block: &[
        ATTN_NORM,
        QKV,
        HEAD_NORMS,
        ATTN_OUT,
        CONVOLUTION,
        FFN_NORM,
        EXPERTS,
        CHOICE_BIAS_REQUIRED,
        QKV_BIAS_OPTIONAL,
    ],
    window: None,
    experts: ExpertRule {
        gating: GatingRule::Key(None),
        width: ExpertWidth::Key,
        layers: ExpertLayers::AfterLeading,
        ..ExpertRule::USUAL
    },
    checkpoints: &[&Checkpoint {
        classes: &["Lfm2MoeForCausalLM"],
        more_names: &[
            ("feed_forward.gate.weight", &["ffn_gate_inp.weight"]),
            ("feed_forward.expert_bias", &["exp_probs_b.bias"]),
            ("feed_forward.experts.*.w1.weight", &["ffn_gate_exps.weight"]),
            ("feed_forward.experts.*.w2.weight", &["ffn_down_exps.weight"]),
            ("feed_forward.experts.*.w3.weight", &["ffn_up_exps.weight"]),
        ],
        keys: KEYS,
        more_keys: &[
            Key::ExpertWidth,
            Key::Whole(&["num_dense_layers"], "leading_dense_block_count"),
            Key::Constant("expert_gating_func", 2),
            Key::VocabSize,
            Key::Whole(&["conv_L_cache"], "shortconv.l_cache"),
        ],
        ..CHECKPOINT
    }],
    ..LFM2
};
