//! Nemotron H: blocks of Mamba 2, of attention and of a feed-forward network, one of the three each.

use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, NARROW_PLAIN_EXPERTS, SHARED_PLAIN};
use crate::arch::factors::{NEMOTRON_EXPERT_SCALES, NEMOTRON_SCALES};
use crate::arch::joined::joined;
use crate::arch::mtp_parts::MTP_OF_SINGLES;
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, Group, PLAIN_FFN, PLAIN_FFN_BIAS_OPTIONAL, QKV, QKV_BIAS_OPTIONAL,
    begun,
};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS, GROUP_NORM, MAMBA_2};
use crate::arch::rules::{
    DraftState, ExpertRule, ExpertWidth, FeedForward, GatingRule, HeadRule, Mixing, NormKind, Normalize, Recurrence,
    RopeRule, SharedWidth,
};
use crate::arch::{Activation, Arch, Checkpoint, Gating, Key, Name, Step, Tokenizer};

/// The letters of blocks' kinds in `config.json`.
const PATTERN: &str = "hybrid_override_pattern";
/// The groups that blocks of all three kinds have between them, but for those of networks.
const MIXERS: &[Group] =
    &[ATTN_NORM, QKV, ATTN_OUT, MAMBA_2, CONVOLUTION_BIAS, GROUP_NORM, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL];

/// The first keys of all checkpoints.
const SIZES: &[Key] = &[Key::Blocks, Key::Context, Key::Embedding];

/// Keys of the heads of attention.
const HEADS: &[Key] =
    &[Key::Heads, Key::ByPattern(PATTERN, '*', &["num_key_value_heads"], "attention.head_count_kv"), Key::RopeBase];

/// Keys of Mamba's layers, and what stands around them.
const MIXER_KEYS: &[Key] = &[
    Key::FileType,
    Key::VocabSize,
    Key::Quotient(&["hidden_size"], &["num_attention_heads"], "rope.dimension_count"),
    Key::WholeOr(&["conv_kernel"], "ssm.conv_kernel", 4),
    Key::Whole(&["ssm_state_size"], "ssm.state_size"),
    Key::Whole(&["n_groups"], "ssm.group_count"),
    Key::Product(&["mamba_num_heads"], &["mamba_head_dim"], "ssm.inner_size"),
    Key::Whole(&["mamba_num_heads"], "ssm.time_step_rank"),
    Key::ConstantFlag("rope.scaling.finetuned", false),
    Key::Constant("context_length", 1 << 20),
    Key::Whole(&["head_dim", "attention_head_dim"], "attention.key_length"),
    Key::Whole(&["head_dim", "attention_head_dim"], "attention.value_length"),
];

/// `nemotron_h`.
pub const NEMOTRON_H: Arch = Arch {
    name: "nemotron_h",
    draft_state: DraftState::Normed,
    models: "Nemotron H, Nemotron Nano 2",
    block: begun!(MIXERS, PLAIN_FFN, PLAIN_FFN_BIAS_OPTIONAL),
    norm: NormKind::RmsOfEither,
    mixing: Mixing::ByHeadsAlone(Recurrence::Mamba2),
    rope: RopeRule::NONE,
    feed_forward: FeedForward { activation: Activation::SquaredRelu, ..Arch::DENSE.feed_forward },
    scaled: NEMOTRON_SCALES,
    steered: false,
    checkpoints: &[&Checkpoint {
        classes: &["NemotronHForCausalLM"],
        activations: &["relu2", "silu"],
        root: "backbone",
        names: NAMES,
        steps: STEPS,
        rms_eps: None,
        layer_eps: Some(1e-5),
        rope_theta: 0.0,
        keys: joined!(
            SIZES,
            &[Key::ByPattern(PATTERN, '-', &["intermediate_size"], "feed_forward_length")],
            HEADS,
            &[Key::LayerEpsilon],
            MIXER_KEYS,
        ),
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// The common names of checkpoints.
const NAMES: &[Name] = &[
    ("embeddings.weight", &["token_embd.weight"]),
    ("norm_f.weight", &["output_norm.weight"]),
    ("norm.weight", &["attn_norm.weight"]),
    ("mixer.in_proj.weight", &["ssm_in.weight"]),
    ("mixer.conv1d.weight", &["ssm_conv1d.weight"]),
    ("mixer.conv1d.bias", &["ssm_conv1d.bias"]),
    ("mixer.dt_bias", &["ssm_dt.bias"]),
    ("mixer.A_log", &["ssm_a"]),
    ("mixer.D", &["ssm_d"]),
    ("mixer.norm.weight", &["ssm_norm.weight"]),
    ("mixer.out_proj.weight", &["ssm_out.weight"]),
    ("mixer.q_proj.weight", &["attn_q.weight"]),
    ("mixer.k_proj.weight", &["attn_k.weight"]),
    ("mixer.v_proj.weight", &["attn_v.weight"]),
    ("mixer.o_proj.weight", &["attn_output.weight"]),
    ("mixer.up_proj.weight", &["ffn_up.weight"]),
    ("mixer.down_proj.weight", &["ffn_down.weight"]),
];

/// Steps of their tensors.
const STEPS: &[(&str, &[Step])] = &[
    ("mixer.A_log", &[Step::Decay]),
    ("mixer.norm.weight", &[Step::Reshaped]),
    ("mixer.q_proj.weight", &[Step::HalvesTogether]),
    ("mixer.k_proj.weight", &[Step::HalvesTogether]),
];

/// `nemotron_h_moe`: networks are mixtures of experts without gates. The block of the head has attention and a mixture.
pub const NEMOTRON_H_MOE: Arch = Arch {
    name: "nemotron_h_moe",
    models: "Nemotron 3 Nano, Super, Puzzle",
    mtp: MTP_OF_SINGLES,
    heads: HeadRule::OneOfLayerNorm,
    expert_block: begun!(MIXERS, NARROW_PLAIN_EXPERTS, CHOICE_BIAS_REQUIRED, SHARED_PLAIN),
    experts: ExpertRule {
        gating: GatingRule::Fixed(Gating::Sigmoid),
        normalize: Normalize::Key,
        scale: true,
        width: ExpertWidth::KeyOrShare,
        shared: SharedWidth::Key,
        latent: Some("moe_latent_size"),
        by_layer: true,
        ..ExpertRule::USUAL
    },
    scaled: NEMOTRON_EXPERT_SCALES,
    checkpoints: &[
        &Checkpoint { told_by: Some("num_experts_per_tok"), classes: &["NemotronHForCausalLM"], ..EXPERT_CHECKPOINT },
        &Checkpoint {
            classes: &["NemotronHPuzzleForCausalLM"],
            keys: joined!(
                SIZES,
                &[Key::OfBlocks("moe_intermediate_size", "feed_forward_length")],
                HEADS,
                EXPERT_KEYS,
                MIXER_KEYS,
                &[
                    Key::OfBlocks("moe_intermediate_size", "expert_feed_forward_length"),
                    Key::OfBlocks("num_experts_per_tok", "expert_used_count")
                ],
                SHARED_KEYS
            ),
            ..EXPERT_CHECKPOINT
        },
    ],
    ..NEMOTRON_H
};

/// Keys between the widths of networks with experts and those of experts.
const EXPERT_KEYS: &[Key] = &[
    Key::Fraction(&["rms_norm_eps", "norm_eps"], "attention.layer_norm_rms_epsilon"),
    Key::LayerEpsilon,
    Key::Experts,
    Key::ExpertsUsed,
    Key::ExpertGroups,
];

/// Keys behind the widths of experts.
const SHARED_KEYS: &[Key] = &[
    Key::Whole(&["moe_shared_expert_intermediate_size"], "expert_shared_feed_forward_length"),
    Key::Whole(&["n_shared_experts"], "expert_shared_count"),
    Key::Flag("norm_topk_prob", "expert_weights_norm", true),
    Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
    Key::Whole(&["moe_latent_size"], "moe_latent_size"),
];

/// The common part of checkpoints with experts.
const EXPERT_CHECKPOINT: Checkpoint = Checkpoint {
    activations: &["relu2", "silu"],
    root: "backbone",
    beginnings: &[("model.", "backbone.")],
    names: NAMES,
    more_names: &[
        ("mixer.gate.weight", &["ffn_gate_inp.weight"]),
        ("mixer.gate.e_score_correction_bias", &["exp_probs_b.bias"]),
        ("mixer.gate.e_score_correction.bias", &["exp_probs_b.bias"]),
        ("mixer.experts.*.down_proj.weight", &["ffn_down_exps.weight"]),
        ("mixer.experts.*.up_proj.weight", &["ffn_up_exps.weight"]),
        ("mixer.shared_experts.up_proj.weight", &["ffn_up_shexp.weight"]),
        ("mixer.shared_experts.down_proj.weight", &["ffn_down_shexp.weight"]),
        ("mixer.fc1_latent_proj.weight", &["ffn_latent_down.weight"]),
        ("mixer.fc2_latent_proj.weight", &["ffn_latent_up.weight"]),
    ],
    steps: STEPS,
    left_out: &["mtp."],
    rms_eps: None,
    layer_eps: Some(1e-5),
    rope_theta: 0.0,
    keys: joined!(
        SIZES,
        &[Key::ByPattern(PATTERN, 'E', &["moe_intermediate_size"], "feed_forward_length")],
        HEADS,
        EXPERT_KEYS,
        MIXER_KEYS,
        &[Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length")],
        SHARED_KEYS
    ),
    tokenizer: Tokenizer::Json,
    ..Checkpoint::USUAL
};
