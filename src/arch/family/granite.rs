//! Granite: LLaMA with factors on the embeddings, the attention scores, the output of each sublayer, and the logits. A
//! file states all of them; a checkpoint calls them multipliers. MiniCPM shares the graph and assumes some.

use super::llama::{self, LLAMA};
use crate::arch::expert_parts::{EXPERTS, EXPERTS_OR_FUSED, SHARED, SHARED_FUSED};
use crate::arch::factors::{ATTENTION_SCALES, SSM_SCALES};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS_OPTIONAL, FFN_BIAS_OPTIONAL, FFN_NORM, GATED_FFN, Group, QKV, QKV_BIAS_OPTIONAL,
    SINKS, begun,
};
use crate::arch::recurrent_parts::{CONVOLUTION_BIAS, GROUP_NORM, MAMBA_2};
use crate::arch::rules::{
    Attention, EmbeddingScale, ExpertRule, LogitScale, Mixing, Output, Recurrence, ResidualScale, RopeLayers, RopeRule,
    ScoreScale, SharedWidth, WindowRule,
};
use crate::arch::slot_parts::SLOTS;
use crate::arch::{Arch, Checkpoint, Fixed, Fused, HeadDim, Key, KvHeads, Name, RopeScaling, SpacePrefix, Step};

/// `granite`.
pub const GRANITE: Arch = Arch {
    name: "granite",
    models: "Granite 3 (dense)",
    expert_block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, EXPERTS, SHARED, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL],
    rope: RopeRule { layers: RopeLayers::Finetuned, ..RopeRule::ADJACENT },
    attention: Attention { scale: ScoreScale::Key, ..Attention::USUAL },
    experts: ExpertRule { shared: SharedWidth::Key, ..ExpertRule::USUAL },
    scaled: ATTENTION_SCALES,
    embedding_scale: EmbeddingScale::Key(0.0),
    residual_scale: ResidualScale::Key,
    output: Output { scale: LogitScale::Divide, ..LLAMA.output },
    checkpoints: &[&Checkpoint {
        classes: &["GraniteForCausalLM"],
        more_keys: &[Key::VocabSize, Key::RopeDimensions, ATTENTION, EMBEDDING, RESIDUAL, LOGITS],
        ..CHECKPOINT
    }],
    ..LLAMA
};

const ATTENTION: Key = Key::Number("attention_multiplier", "attention.scale", 1.0);
const EMBEDDING: Key = Key::Number("embedding_multiplier", "embedding_scale", 1.0);
const RESIDUAL: Key = Key::Number("residual_multiplier", "residual_scale", 1.0);
const LOGITS: Key = Key::Number("logits_scaling", "logit_scale", 1.0);

/// The common part of the classes' checkpoints.
const CHECKPOINT: Checkpoint = Checkpoint { activations: &["silu"], head_dim: HeadDim::Implied, ..llama::CHECKPOINT };

const MOE: &[Name] = &[
    ("block_sparse_moe.router.layer.weight", &["ffn_gate_inp.weight"]),
    ("block_sparse_moe.input_linear.weight", &["ffn_gate_exps.weight", "ffn_up_exps.weight"]),
    ("block_sparse_moe.output_linear.weight", &["ffn_down_exps.weight"]),
    ("shared_mlp.input_linear.weight", &["ffn_gate_shexp.weight", "ffn_up_shexp.weight"]),
    ("shared_mlp.output_linear.weight", &["ffn_down_shexp.weight"]),
];

/// `granitemoe`.
pub const GRANITEMOE: Arch = Arch {
    name: "granitemoe",
    models: "Granite 3 MoE",
    rope: RopeRule::ADJACENT,
    checkpoints: &[&Checkpoint {
        classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
        names: MOE,
        more_keys: &[Key::VocabSize, Key::RopeDimensions, ATTENTION, EMBEDDING, RESIDUAL, LOGITS, Key::SharedWidth],
        ..CHECKPOINT
    }],
    ..GRANITE
};

/// `graniteswitch`: several adapters in one file, which tokens switch on.
pub const GRANITESWITCH: Arch = Arch {
    name: "graniteswitch",
    models: "Granite Switch 4.1",
    block: &[ATTN_NORM, QKV, ATTN_OUT, FFN_NORM, GATED_FFN, SLOTS],
    expert_block: &[],
    switched: true,
    scaled: &[],
    checkpoints: &[&Checkpoint {
        classes: &["GraniteSwitchForCausalLM"],
        blocks_less: 1,
        names: SWITCH_NAMES,
        steps: SWITCH_STEPS,
        left_out: &[
            "lm_head.",
            "model.switch.",
            "switch.",
            "model.adapter_token_ids",
            "model.control_to_substitute_lut",
        ],
        fused: Some(Fused::InOrder),
        tied: true,
        more_keys: &[
            Key::VocabSize,
            Key::RopeDimensions,
            ATTENTION,
            EMBEDDING,
            RESIDUAL,
            LOGITS,
            Key::SharedWidth,
            Key::Constant("expert_used_count", 0),
            Key::Whole(&["num_adapters"], "adapters.count"),
            Key::Whole(&["max_lora_rank"], "adapters.lora_rank"),
            Key::AllOf("adapter_token_ids", "adapters.token_ids_activate"),
            Key::AllOf("adapter_substitute_token_ids", "adapters.token_ids_substitute"),
            Key::FractionOr(&["control_token_gain"], "adapters.router_gain", 15.0),
        ],
        ..CHECKPOINT
    }],
    ..GRANITE
};

const SWITCH_NAMES: &[Name] = &[
    ("self_attn.qkv_proj.base_layer.weight", &["attn_qkv.weight"]),
    ("self_attn.qkv_proj.lora_A_slices.0", &["attn_q.lora_a"]),
    ("self_attn.qkv_proj.lora_A_slices.1", &["attn_k.lora_a"]),
    ("self_attn.qkv_proj.lora_A_slices.2", &["attn_v.lora_a"]),
    ("self_attn.qkv_proj.lora_B_slices.0", &["attn_q.lora_b"]),
    ("self_attn.qkv_proj.lora_B_slices.1", &["attn_k.lora_b"]),
    ("self_attn.qkv_proj.lora_B_slices.2", &["attn_v.lora_b"]),
    ("self_attn.o_proj.base_layer.weight", &["attn_output.weight"]),
    ("self_attn.o_proj.lora_A", &["attn_output.lora_a"]),
    ("self_attn.o_proj.lora_B", &["attn_output.lora_b"]),
    ("shared_mlp.input_linear.base_layer.weight", &["ffn_gate.weight", "ffn_up.weight"]),
    ("shared_mlp.input_linear.lora_A_slices.0", &["ffn_gate.lora_a"]),
    ("shared_mlp.input_linear.lora_A_slices.1", &["ffn_up.lora_a"]),
    ("shared_mlp.input_linear.lora_B_slices.0", &["ffn_gate.lora_b"]),
    ("shared_mlp.input_linear.lora_B_slices.1", &["ffn_up.lora_b"]),
    ("shared_mlp.output_linear.base_layer.weight", &["ffn_down.weight"]),
    ("shared_mlp.output_linear.lora_A", &["ffn_down.lora_a"]),
    ("shared_mlp.output_linear.lora_B", &["ffn_down.lora_b"]),
];
/// No adapter is the first of them.
const SWITCH_STEPS: &[(&str, &[Step])] = &[
    ("self_attn.qkv_proj.base_layer.weight", &[Step::FusedHalvesTogether]),
    ("self_attn.qkv_proj.lora_B_slices.0", &[Step::BehindZeros, Step::HalvesTogether]),
    ("self_attn.qkv_proj.lora_B_slices.1", &[Step::BehindZeros, Step::HalvesTogether]),
    ("self_attn.qkv_proj.lora_B_slices.2", &[Step::BehindZeros]),
    ("self_attn.qkv_proj.lora_A_slices.*", &[Step::BehindZeros]),
    ("self_attn.o_proj.lora_A", &[Step::BehindZeros]),
    ("self_attn.o_proj.lora_B", &[Step::BehindZeros]),
    ("shared_mlp.input_linear.lora_A_slices.*", &[Step::BehindZeros]),
    ("shared_mlp.input_linear.lora_B_slices.*", &[Step::BehindZeros]),
    ("shared_mlp.output_linear.lora_A", &[Step::BehindZeros]),
    ("shared_mlp.output_linear.lora_B", &[Step::BehindZeros]),
];

/// Groups that both kinds of blocks begin with.
const GRANITE_SWA_MIXING: &[Group] = &[ATTN_NORM, QKV, ATTN_OUT, SINKS, FFN_NORM];

/// `granite_swa`: windows, and a sink in every head.
pub const GRANITE_SWA: Arch = Arch {
    name: "granite_swa",
    models: "Granite with windows",
    block: begun!(GRANITE_SWA_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL, FFN_BIAS_OPTIONAL),
    expert_block: begun!(GRANITE_SWA_MIXING, EXPERTS_OR_FUSED, SHARED_FUSED, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL),
    rope: RopeRule { layers: RopeLayers::Pattern, ..RopeRule::ADJACENT },
    window: Some(WindowRule::needed(1)),
    checkpoints: &[&Checkpoint {
        classes: &["GraniteSWAForCausalLM"],
        more_keys: &[
            Key::VocabSize,
            Key::RopeDimensions,
            ATTENTION,
            EMBEDDING,
            RESIDUAL,
            LOGITS,
            Key::Window(128),
            Key::WindowLayers,
            Key::Flags("no_rope_layers", "attention.rope_pattern"),
        ],
        ..CHECKPOINT
    }],
    ..GRANITE
};

/// Groups that both kinds of blocks begin with.
const GRANITEHYBRID_MIXING: &[Group] = &[ATTN_NORM, QKV, ATTN_OUT, MAMBA_2, CONVOLUTION_BIAS, GROUP_NORM, FFN_NORM];

/// `granitehybrid`: Mamba 2 in most blocks.
pub const GRANITEHYBRID: Arch = Arch {
    name: "granitehybrid",
    models: "Granite 4 Hybrid",
    block: begun!(GRANITEHYBRID_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL, FFN_BIAS_OPTIONAL),
    expert_block: begun!(GRANITEHYBRID_MIXING, EXPERTS, SHARED, QKV_BIAS_OPTIONAL, ATTN_OUT_BIAS_OPTIONAL),
    mixing: Mixing::ByHeads(Recurrence::Mamba2),
    output: Output { scale: LogitScale::DivideIfAny, ..GRANITE.output },
    scaled: SSM_SCALES,
    checkpoints: &[&Checkpoint {
        classes: &["GraniteMoeHybridForCausalLM"],
        names: MOE,
        more_names: &[
            ("shared_mlp.input_linear.weight", &["ffn_gate.weight", "ffn_up.weight"]),
            ("shared_mlp.output_linear.weight", &["ffn_down.weight"]),
            ("mamba.in_proj.weight", &["ssm_in.weight"]),
            ("mamba.conv1d.weight", &["ssm_conv1d.weight"]),
            ("mamba.conv1d.bias", &["ssm_conv1d.bias"]),
            ("mamba.dt_bias", &["ssm_dt.bias"]),
            ("mamba.A_log", &["ssm_a"]),
            ("mamba.D", &["ssm_d"]),
            ("mamba.norm.weight", &["ssm_norm.weight"]),
            ("mamba.out_proj.weight", &["ssm_out.weight"]),
        ],
        steps: &[("mamba.A_log", &[Step::Decay]), ("mamba.norm.weight", &[Step::Reshaped])],
        fixed: &[("position_embedding_type", Fixed::Text("nope"))],
        dense_too: true,
        keys: &[
            Key::Blocks,
            Key::Context,
            Key::Embedding,
            Key::FeedForward,
            Key::Heads,
            Key::KvHeadsBut("mamba"),
            Key::RopeScaling,
            Key::RopeBase,
            Key::RmsEpsilon,
            Key::Experts,
            Key::ExpertsUsed,
            Key::FileType,
        ],
        more_keys: &[
            Key::VocabSize,
            Key::RopeDimensions,
            ATTENTION,
            EMBEDDING,
            RESIDUAL,
            LOGITS,
            Key::Whole(&["shared_intermediate_size"], "expert_shared_feed_forward_length"),
            Key::WholeOr(&["mamba_d_conv"], "ssm.conv_kernel", 4),
            Key::WholeOr(&["mamba_d_state"], "ssm.state_size", 256),
            Key::WholeOr(&["mamba_n_groups"], "ssm.group_count", 1),
            Key::Product(&["mamba_expand"], &["hidden_size"], "ssm.inner_size"),
            Key::Whole(&["mamba_n_heads"], "ssm.time_step_rank"),
            Key::ConstantFlag("rope.scaling.finetuned", false),
            Key::Constant("context_length", 1 << 20),
        ],
        space_prefix: SpacePrefix::Tokenizer,
        token_rules: &[],
        ..CHECKPOINT
    }],
    ..GRANITE
};

/// `minicpm`.
pub const MINICPM: Arch = Arch {
    name: "minicpm",
    models: "MiniCPM 1, 2 and 4",
    expert_block: LLAMA.expert_block,
    rope: RopeRule::ADJACENT,
    attention: Attention::USUAL,
    experts: ExpertRule::USUAL,
    embedding_scale: EmbeddingScale::Key(12.0),
    residual_scale: ResidualScale::KeyOrDepth(1.4),
    output: Output { scale: LogitScale::DivideOrWidth(256.0), ..LLAMA.output },
    checkpoints: &[&Checkpoint {
        classes: &["MiniCPMForCausalLM"],
        head_dim: HeadDim::Implied,
        tied: true,
        rope_theta: 0.0,
        kv_heads: KvHeads::StatedAlone,
        rope_scaling: RopeScaling::Long,
        more_keys: &[
            Key::Fraction(&["scale_emb"], "embedding_scale"),
            Key::DepthScale("scale_depth"),
            Key::WidthRatio("dim_model_base"),
        ],
        ..Checkpoint::USUAL
    }],
    ..GRANITE
};
