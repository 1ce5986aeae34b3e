//! PLaMo 1 (both sublayers of a block read one norm), PLaMo 2 (with Mamba) and PLaMo 3.

use crate::arch::factors::ATTN_OUT_SCALE;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_POST_NORM_BARE, ENDS, FFN_NORM, FFN_POST_NORM_BARE, FUSED_FFN, GATED_FFN, HEAD_NORMS,
    OUTPUT_OR_TIED, OUTPUT_REQUIRED, OWN_HEAD_NORMS, QKV, QKV_BIAS_OPTIONAL,
};
use crate::arch::recurrent_parts::PLAMO_MAMBA;
use crate::arch::rules::{Attention, Mixing, Recurrence, Residual, RopeRule, ScoreScale, Sum, WindowRope, WindowRule};
use crate::arch::{Arch, Checkpoint, Fixed, Fused, HeadDim, Key, KvHeads, Name, Step, TokenKey, Tokenizer, Turn};

/// `plamo`.
pub const PLAMO: Arch = Arch {
    name: "plamo",
    models: "PLaMo 1",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: &[ATTN_NORM, QKV, ATTN_OUT, GATED_FFN, QKV_BIAS_OPTIONAL],
    residual: Residual::Parallel(Sum::HalvesFirst),
    checkpoints: &[&Checkpoint {
        classes: &["PlamoForCausalLM"],
        blocks: "layers.layers",
        // config.json names another number, and every key serves eight heads
        kv_heads: KvHeads::Fixed(5),
        head_dim: HeadDim::Implied,
        names: &[("norm.weight", &["attn_norm.weight"])],
        steps: &[
            ("self_attn.q_proj.weight", &[Step::InTurns(Turn::Queries)]),
            ("self_attn.o_proj.weight", &[Step::InTurns(Turn::Outputs)]),
        ],
        keys: &[
            Key::Constant("context_length", 4096),
            Key::Embedding,
            Key::FeedForward,
            Key::Blocks,
            Key::Heads,
            Key::KvHeads,
            Key::RmsEpsilon,
            Key::FileType,
        ],
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// `plamo2`: Mamba in every other block.
pub const PLAMO2: Arch = Arch {
    name: "plamo2",
    models: "PLaMo 2",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[
        ATTN_NORM,
        QKV,
        OWN_HEAD_NORMS,
        ATTN_OUT,
        PLAMO_MAMBA,
        ATTN_POST_NORM_BARE,
        FFN_NORM,
        FUSED_FFN,
        FFN_POST_NORM_BARE,
    ],
    attention: Attention { scale: ScoreScale::ValueSize, values_apart: true, ..Attention::USUAL },
    mixing: Mixing::ByHeads(Recurrence::Plamo),
    rope: RopeRule::PARTIAL,
    scaled: ATTN_OUT_SCALE,
    steered: false,
    checkpoints: &[&Checkpoint {
        classes: &["Plamo2ForCausalLM", "PLaMo2ForCausalLM"],
        names: NAMES,
        more_names: &[
            ("mixer.q_weight", &["attn_q_norm.weight"]),
            ("mixer.k_weight", &["attn_k_norm.weight"]),
            ("mixer.in_proj.weight", &["ssm_in.weight"]),
            ("mixer.conv1d.weight", &["ssm_conv1d.weight"]),
            ("mixer.bcdt_proj.weight", &["ssm_x.weight"]),
            ("mixer.dt_proj.weight", &["ssm_dt.weight"]),
            ("mixer.dt_bias", &["ssm_dt.bias"]),
            ("mixer.dt_norm_weight", &["ssm_dt_norm"]),
            ("mixer.B_norm_weight", &["ssm_b_norm"]),
            ("mixer.C_norm_weight", &["ssm_c_norm"]),
            ("mixer.A_log", &["ssm_a"]),
            ("mixer.D", &["ssm_d"]),
            ("mixer.out_proj.weight", &["ssm_out.weight"]),
        ],
        steps: &[
            ("post_mixer_norm.weight", &[Step::PlusFifth]),
            ("post_mlp_norm.weight", &[Step::PlusFifthOfRoot]),
            ("mixer.q_weight", &[Step::AsItIs]),
            ("mixer.k_weight", &[Step::AsItIs]),
            ("mixer.dt_norm_weight", &[Step::AsItIs]),
            ("mixer.B_norm_weight", &[Step::AsItIs]),
            ("mixer.C_norm_weight", &[Step::AsItIs]),
            ("mixer.A_log", &[Step::Decay]),
        ],
        heads: Some(32),
        kv_heads: KvHeads::StatedOr(4),
        head_dim: HeadDim::Stated("hidden_size_per_head"),
        keys: &[
            Key::VocabSize,
            Key::AttendsBySteps("num_key_value_heads", "attention.head_count_kv", 4),
            Key::AttendsBySteps("num_attention_heads", "attention.head_count", 32),
            Key::Context,
            Key::Embedding,
            Key::HeadSizes,
            Key::Blocks,
            Key::RmsEpsilon,
            Key::RopeBase,
            Key::WholeOr(&["mamba_d_state"], "ssm.state_size", 64),
            Key::WholeOr(&["mamba_d_conv"], "ssm.conv_kernel", 4),
            Key::WholeOr(&["mamba_num_heads"], "ssm.time_step_rank", 64),
            Key::Product(&["mamba_num_heads"], &["hidden_size_per_head"], "ssm.inner_size"),
            Key::Constant("ssm.group_count", 0),
            Key::FeedForward,
            Key::FileType,
        ],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};

/// The common part of the checkpoints of PLaMo 2 and 3, whose norms are stored less what they are about.
const CHECKPOINT: Checkpoint = Checkpoint {
    norms_plus_one: true,
    blocks: "layers.layers",
    names: NAMES,
    fused: Some(Fused::InOrder),
    head_dim: HeadDim::Implied,
    tokenizer: Tokenizer::Plamo,
    ..Checkpoint::USUAL
};

const NAMES: &[Name] = &[
    ("pre_mixer_norm.weight", &["attn_norm.weight"]),
    ("mixer.qkv_proj.weight", &["attn_qkv.weight"]),
    ("mixer.o_proj.weight", &["attn_output.weight"]),
    ("post_mixer_norm.weight", &["post_attention_norm"]),
    ("pre_mlp_norm.weight", &["ffn_norm.weight"]),
    ("mlp.gate_up_proj.weight", &["ffn_up.weight"]),
    ("post_mlp_norm.weight", &["post_ffw_norm"]),
];

/// `plamo3`.
pub const PLAMO3: Arch = Arch {
    name: "plamo3",
    models: "PLaMo 3",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, ATTN_POST_NORM_BARE, FFN_NORM, FUSED_FFN, FFN_POST_NORM_BARE],
    attention: Attention { values_apart: true, ..Attention::USUAL },
    rope: RopeRule::PARTIAL,
    window: Some(WindowRule { rope: WindowRope::OWN, ..WindowRule::every(8) }),
    scaled: ATTN_OUT_SCALE,
    checkpoints: &[&Checkpoint {
        classes: &["Plamo3ForCausalLM", "PLaMo3ForCausalLM"],
        more_names: &[
            ("mixer.q_norm.weight", &["attn_q_norm.weight"]),
            ("mixer.k_norm.weight", &["attn_k_norm.weight"]),
        ],
        steps: &[("post_mixer_norm.weight", &[Step::PlusFifth]), ("post_mlp_norm.weight", &[Step::PlusFifthOfRoot])],
        fixed: &[("rope_scaling_factor", Fixed::Number(1.0))],
        more_keys: &[
            Key::VocabSize,
            Key::Whole(&["window_size", "sliding_window"], "attention.sliding_window"),
            Key::Whole(&["sliding_window_pattern"], "attention.sliding_window_pattern"),
        ],
        token_keys: &[TokenKey::Template],
        ..CHECKPOINT
    }],
    ..Arch::DENSE
};
