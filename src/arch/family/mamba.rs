//! Mamba 1 and 2, and Jamba: Mamba 1 with attention in some blocks and experts in some.

use crate::arch::expert_parts::EXPERTS;
use crate::arch::factors::SSM_SCALES;
use crate::arch::parts::{ATTN_NORM, ATTN_OUT, FFN_NORM, GATED_FFN, QKV, QKV_BIAS_OPTIONAL};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS, GROUP_NORM, MAMBA, MAMBA_2, MAMBA_NORMS};
use crate::arch::rules::{ExpertLayers, ExpertRule, Mixing, Normalize, Recurrence, RopeRule};
use crate::arch::{Arch, Checkpoint, HeadDim, Key, KvHeads, Name, RopeScaling, Step, Tokenizer, Width};

/// `mamba`.
pub const MAMBA_1: Arch = Arch {
    name: "mamba",
    models: "Mamba, Falcon Mamba",
    block: &[ATTN_NORM, MAMBA],
    mixing: Mixing::Recurrent(Recurrence::Mamba),
    rope: RopeRule::NONE,
    scaled: SSM_SCALES,
    checkpoints: &[
        &Checkpoint {
            classes: &["MambaForCausalLM", "MambaLMHeadModel"],
            steps: &[("mixer.A_log", &[Step::Decay])],
            keys: &[
                Key::Constant("context_length", 1 << 20),
                Key::Embedding,
                Key::Constant("feed_forward_length", 0),
                Key::Constant("attention.head_count", 0),
                Key::Blocks,
                Key::WholeOr(&["conv_kernel", "d_conv"], "ssm.conv_kernel", 4),
                Key::Whole(&["intermediate_size", "d_inner"], "ssm.inner_size"),
                Key::WholeOr(&["state_size", "d_state"], "ssm.state_size", 16),
                Key::Whole(&["time_step_rank", "dt_rank"], "ssm.time_step_rank"),
                EPSILON,
                Key::ConstantFlag("ssm.dt_b_c_rms", false),
                Key::FileType,
            ],
            ..CHECKPOINT
        },
        &Checkpoint {
            classes: &["FalconMambaForCausalLM"],
            steps: &[("mixer.A_log", &[Step::Decay])],
            keys: &[
                Key::Constant("context_length", 1 << 20),
                Key::Embedding,
                Key::Constant("feed_forward_length", 0),
                Key::Constant("attention.head_count", 0),
                Key::Blocks,
                Key::WholeOr(&["conv_kernel", "d_conv"], "ssm.conv_kernel", 4),
                Key::Whole(&["intermediate_size", "d_inner"], "ssm.inner_size"),
                Key::WholeOr(&["state_size", "d_state"], "ssm.state_size", 16),
                Key::Whole(&["time_step_rank", "dt_rank"], "ssm.time_step_rank"),
                EPSILON,
                Key::ConstantFlag("ssm.dt_b_c_rms", true),
                Key::FileType,
            ],
            ..CHECKPOINT
        },
    ],
    ..Arch::DENSE
};

/// Names of Mamba 1's tensors within a block.
const MIXER: &[Name] = &[
    ("norm.weight", &["attn_norm.weight"]),
    ("mixer.in_proj.weight", &["ssm_in.weight"]),
    ("mixer.conv1d.weight", &["ssm_conv1d.weight"]),
    ("mixer.conv1d.bias", &["ssm_conv1d.bias"]),
    ("mixer.x_proj.weight", &["ssm_x.weight"]),
    ("mixer.dt_proj.weight", &["ssm_dt.weight"]),
    ("mixer.dt_proj.bias", &["ssm_dt.bias"]),
    ("mixer.dt_bias", &["ssm_dt.bias"]),
    ("mixer.A_log", &["ssm_a"]),
    ("mixer.D", &["ssm_d"]),
    ("mixer.norm.weight", &["ssm_norm.weight"]),
    ("mixer.out_proj.weight", &["ssm_out.weight"]),
];

/// The common part of checkpoints without attention.
const CHECKPOINT: Checkpoint = Checkpoint {
    root: "backbone",
    tied: true,
    names: &[("embeddings.weight", &["token_embd.weight"]), ("norm_f.weight", &["output_norm.weight"])],
    more_names: MIXER,
    heads: Some(0),
    kv_heads: KvHeads::One,
    head_dim: HeadDim::Fixed(64),
    width: Width::StatedIfAny,
    rope_scaling: RopeScaling::None,
    tokenizer: Tokenizer::Json,
    ..Checkpoint::USUAL
};
const EPSILON: Key = Key::FractionOr(&["layer_norm_epsilon", "rms_norm_eps"], "attention.layer_norm_rms_epsilon", 1e-5);

/// `mamba2`.
pub const MAMBA2: Arch = Arch {
    name: "mamba2",
    models: "Mamba 2, Codestral Mamba",
    block: &[ATTN_NORM, MAMBA_2, CONVOLUTION_BIAS, GROUP_NORM],
    mixing: Mixing::Recurrent(Recurrence::Mamba2),
    checkpoints: &[&Checkpoint {
        classes: &["Mamba2ForCausalLM"],
        steps: &[("mixer.A_log", &[Step::Decay]), ("mixer.norm.weight", &[Step::Reshaped])],
        keys: &[
            Key::Constant("context_length", 1 << 20),
            Key::Embedding,
            Key::Constant("feed_forward_length", 0),
            Key::Constant("attention.head_count", 0),
            Key::Blocks,
            Key::WholeOr(&["conv_kernel", "d_conv"], "ssm.conv_kernel", 4),
            Key::Product(&["num_heads"], &["head_dim"], "ssm.inner_size"),
            Key::WholeOr(&["state_size", "d_state"], "ssm.state_size", 128),
            Key::Whole(&["num_heads"], "ssm.time_step_rank"),
            Key::WholeOr(&["n_groups"], "ssm.group_count", 1),
            EPSILON,
            Key::FileType,
        ],
        ..CHECKPOINT
    }],
    ..MAMBA_1
};

/// `jamba`.
pub const JAMBA: Arch = Arch {
    name: "jamba",
    models: "Jamba",
    block: &[ATTN_NORM, QKV, ATTN_OUT, MAMBA, MAMBA_NORMS, FFN_NORM, GATED_FFN, QKV_BIAS_OPTIONAL],
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, MAMBA, MAMBA_NORMS, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    mixing: Mixing::ByHeads(Recurrence::Mamba),
    experts: ExpertRule { normalize: Normalize::Never, layers: ExpertLayers::Routed, ..ExpertRule::USUAL },
    checkpoints: &[&Checkpoint {
        classes: &["JambaForCausalLM"],
        names: &[
            ("final_layernorm.weight", &["output_norm.weight"]),
            ("pre_ff_layernorm.weight", &["ffn_norm.weight"]),
            ("mamba.in_proj.weight", &["ssm_in.weight"]),
            ("mamba.conv1d.weight", &["ssm_conv1d.weight"]),
            ("mamba.conv1d.bias", &["ssm_conv1d.bias"]),
            ("mamba.x_proj.weight", &["ssm_x.weight"]),
            ("mamba.dt_proj.weight", &["ssm_dt.weight"]),
            ("mamba.dt_proj.bias", &["ssm_dt.bias"]),
            ("mamba.A_log", &["ssm_a"]),
            ("mamba.D", &["ssm_d"]),
            ("mamba.dt_layernorm.weight", &["ssm_dt_norm.weight"]),
            ("mamba.b_layernorm.weight", &["ssm_b_norm.weight"]),
            ("mamba.c_layernorm.weight", &["ssm_c_norm.weight"]),
            ("mamba.out_proj.weight", &["ssm_out.weight"]),
            ("feed_forward.gate_proj.weight", &["ffn_gate.weight"]),
            ("feed_forward.up_proj.weight", &["ffn_up.weight"]),
            ("feed_forward.down_proj.weight", &["ffn_down.weight"]),
            ("feed_forward.router.weight", &["ffn_gate_inp.weight"]),
            ("feed_forward.experts.*.down_proj.weight", &["ffn_down_exps.weight"]),
            ("feed_forward.experts.*.gate_proj.weight", &["ffn_gate_exps.weight"]),
            ("feed_forward.experts.*.up_proj.weight", &["ffn_up_exps.weight"]),
        ],
        steps: &[("mamba.A_log", &[Step::Decay])],
        rope_scaling: RopeScaling::None,
        keys: &[
            Key::Blocks,
            Key::Context,
            Key::Embedding,
            Key::FeedForward,
            Key::Heads,
            Key::KvHeadsEvery("attn_layer_offset", "attn_layer_period"),
            Key::WholeOr(&["mamba_d_conv"], "ssm.conv_kernel", 4),
            Key::Product(&["mamba_expand"], &["hidden_size"], "ssm.inner_size"),
            Key::WholeOr(&["mamba_d_state"], "ssm.state_size", 16),
            Key::Whole(&["mamba_dt_rank"], "ssm.time_step_rank"),
            Key::FractionOr(&["layer_norm_epsilon", "rms_norm_eps"], "attention.layer_norm_rms_epsilon", 1e-6),
            Key::Experts,
            Key::ExpertsUsed,
            Key::FileType,
        ],
        ..Checkpoint::USUAL
    }],
    ..MAMBA_1
};
