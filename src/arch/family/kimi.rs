//! Kimi Linear: Kimi Delta Attention in most blocks, latent attention without positions in the others. Kimi K3: the
//! same with bounded decays, gates on what attends, narrow experts, and blocks that choose among the residual streams
//! of earlier ones. Ling 3: bounded decays too, and latent attention with positions and gates.

use super::deepseek2::DEEPSEEK2;
use super::llama::MIXTRAL;
use super::qwen::DOWN_GATE_UP;
use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, NARROW_EXPERTS, SHARED};
use crate::arch::joined::joined;
use crate::arch::latent_parts::{
    EXPANSION_BY_HEAD, EXPANSION_EITHER, LATENT, LATENT_GATE_OPTIONAL, LATENT_OUT, QUERIES, RANKED_QUERIES_OPTIONAL,
};
use crate::arch::mtp_parts::MTP_OR_OUT_NORM;
use crate::arch::parts::{
    ATTN_HEAD_GATE, ATTN_NORM, ENDS, FFN_NORM, GATED_FFN, Group, OUTPUT_OR_TIED, OUTPUT_REQUIRED, RESIDUAL_SCORES,
    RESIDUAL_SCORES_OF_OUTPUT, begun,
};
use crate::arch::recurrent_parts::{KIMI, KIMI_GATES, KIMI_RATES, KIMI_RATES_FLAT, WIDE_GATES, WIDE_OUTPUT_GATE};
use crate::arch::rules::{
    Attention, DraftState, ExpertRule, FeedForward, GateClamp, GatingRule, Mixing, Normalize, Recurrence, RopeRule,
    Sections, SharedWidth,
};
use crate::arch::{Activation, Arch, Checkpoint, Fixed, HeadDim, Key, KvHeads, Step, TokenKey, Tokenizer};

/// Names of latent attention and of Kimi Delta Attention.
pub(super) const KDA_NAMES: &[(&str, &[&str])] = &[
    ("self_attn.kv_b_proj.weight", &["attn_k_b.weight", "attn_v_b.weight"]),
    ("self_attn.q_conv1d.weight", &["ssm_conv1d_q.weight"]),
    ("self_attn.k_conv1d.weight", &["ssm_conv1d_k.weight"]),
    ("self_attn.v_conv1d.weight", &["ssm_conv1d_v.weight"]),
    ("self_attn.A_log", &["ssm_a"]),
    ("self_attn.dt_bias", &["ssm_dt.bias"]),
    ("self_attn.b_proj.weight", &["ssm_beta.weight"]),
    ("self_attn.f_a_proj.weight", &["ssm_f_a.weight"]),
    ("self_attn.f_b_proj.weight", &["ssm_f_b.weight"]),
    ("self_attn.o_norm.weight", &["ssm_norm.weight"]),
];

/// Names of the latter's output gate of low rank.
pub(super) const KDA_GATE_NAMES: &[(&str, &[&str])] =
    &[("self_attn.g_a_proj.weight", &["ssm_g_a.weight"]), ("self_attn.g_b_proj.weight", &["ssm_g_b.weight"])];

/// Names of the choice of experts and of the shared one.
const SHARED_NAMES: &[(&str, &[&str])] = &[
    ("block_sparse_moe.gate.e_score_correction_bias", &["exp_probs_b.bias"]),
    ("block_sparse_moe.shared_experts.gate_proj.weight", &["ffn_gate_shexp.weight"]),
    ("block_sparse_moe.shared_experts.up_proj.weight", &["ffn_up_shexp.weight"]),
    ("block_sparse_moe.shared_experts.down_proj.weight", &["ffn_down_shexp.weight"]),
];

/// Steps of the tensors of both.
pub(super) const KDA_STEPS: &[(&str, &[Step])] = &[
    ("self_attn.kv_b_proj.weight", &[Step::KeysAndValues]),
    ("self_attn.q_conv1d.weight", &[Step::OneRow]),
    ("self_attn.k_conv1d.weight", &[Step::OneRow]),
    ("self_attn.v_conv1d.weight", &[Step::OneRow]),
];

/// Groups that both kinds of blocks begin with.
const KIMI_LINEAR_MIXING: &[Group] =
    &[ATTN_NORM, QUERIES, LATENT, EXPANSION_BY_HEAD, LATENT_OUT, KIMI, KIMI_RATES, KIMI_GATES, FFN_NORM];

/// `kimi-linear`.
pub const KIMI_LINEAR: Arch = Arch {
    name: "kimi-linear",
    models: "Kimi Linear 48B-A3B",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: begun!(KIMI_LINEAR_MIXING, GATED_FFN),
    expert_block: begun!(KIMI_LINEAR_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    mixing: Mixing::ByHeads(Recurrence::Kimi),
    attention: Attention { latent: true, ..Attention::USUAL },
    rope: RopeRule::NONE,
    experts: ExpertRule {
        gating: GatingRule::Key(None),
        normalize: Normalize::Always,
        shared: SharedWidth::CountOrOne,
        ..DEEPSEEK2.experts
    },
    // the graph of Kimi Delta Attention has none
    ignored: &["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"],
    checkpoints: &[&Checkpoint {
        classes: &["KimiLinearForCausalLM", "KimiLinearModel"],
        names: MIXTRAL,
        more_names: joined!(KDA_NAMES, KDA_GATE_NAMES, SHARED_NAMES),
        steps: joined!(KDA_STEPS, &[("self_attn.A_log", &[Step::Decay, Step::OneRow, Step::OneRow]),]),
        kv_heads: KvHeads::One,
        more_keys: &[
            Key::VocabSize,
            Key::KvHeadsIn("linear_attn_config.full_attn_layers"),
            Key::Whole(&["linear_attn_config.short_conv_kernel_size"], "ssm.conv_kernel"),
            Key::Whole(&["linear_attn_config.head_dim"], "kda.head_dim"),
            Key::Whole(&["q_lora_rank"], "attention.q_lora_rank"),
            Key::Whole(&["kv_lora_rank"], "attention.kv_lora_rank"),
            Key::Whole(&["qk_rope_head_dim"], "rope.dimension_count"),
            Key::Sum(&["kv_lora_rank"], &["qk_rope_head_dim"], "attention.key_length"),
            Key::Sum(&["qk_nope_head_dim"], &["qk_rope_head_dim"], "attention.key_length_mla"),
            Key::Whole(&["v_head_dim"], "attention.value_length_mla"),
            Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length"),
            Key::Whole(&["num_shared_experts"], "expert_shared_count"),
            Key::Whole(&["first_k_dense_replace"], "leading_dense_block_count"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..DEEPSEEK2
};

/// Groups that both kinds of blocks begin with.
const KIMI_K3_MIXING: &[Group] = &[
    ATTN_NORM,
    RESIDUAL_SCORES,
    QUERIES,
    RANKED_QUERIES_OPTIONAL,
    LATENT,
    EXPANSION_EITHER,
    LATENT_GATE_OPTIONAL,
    LATENT_OUT,
    KIMI,
    KIMI_RATES_FLAT,
    WIDE_OUTPUT_GATE,
    FFN_NORM,
];

/// `kimi-k3`.
pub const KIMI_K3: Arch = Arch {
    name: "kimi-k3",
    models: "Kimi K3",
    ends: &[ENDS, OUTPUT_REQUIRED, RESIDUAL_SCORES_OF_OUTPUT],
    block: begun!(KIMI_K3_MIXING, GATED_FFN),
    expert_block: begun!(KIMI_K3_MIXING, NARROW_EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    mixing: Mixing::ByHeads(Recurrence::BoundedByRate),
    keeps_residuals: true,
    feed_forward: FeedForward {
        // the numbers are keys of the file
        activation: Activation::Situ([1.0; 2]),
        ..KIMI_LINEAR.feed_forward
    },
    experts: ExpertRule { normalize: Normalize::Key, latent: Some("expert_latent_length"), ..KIMI_LINEAR.experts },
    scaled: &[],
    checkpoints: &[&Checkpoint {
        classes: &["KimiK3ForConditionalGeneration"],
        activations: &["situ"],
        packed: &[
            ("block_sparse_moe.experts.*.w1.weight_packed", &["ffn_gate_exps.weight"]),
            ("block_sparse_moe.experts.*.w2.weight_packed", &["ffn_down_exps.weight"]),
            ("block_sparse_moe.experts.*.w3.weight_packed", &["ffn_up_exps.weight"]),
        ],
        names: MIXTRAL,
        more_names: joined!(
            KDA_NAMES,
            SHARED_NAMES,
            &[
                // of blocks that attend, and of the others
                ("self_attn.g_proj.weight", &["attn_gate.weight"]),
                ("self_attn.g_proj.weight", &["ssm_g.weight"]),
                ("self_attention_res_norm.weight", &["attn_res_score.weight"]),
                ("self_attention_res_proj.weight", &["attn_res_score.weight"]),
                ("mlp_res_norm.weight", &["ffn_res_score.weight"]),
                ("mlp_res_proj.weight", &["ffn_res_score.weight"]),
                ("output_attn_res_norm.weight", &["output_res_score.weight"]),
                ("output_attn_res_proj.weight", &["output_res_score.weight"]),
                ("block_sparse_moe.routed_expert_down_proj.weight", &["ffn_routed_down.weight"]),
                ("block_sparse_moe.routed_expert_up_proj.weight", &["ffn_routed_up.weight"]),
                ("block_sparse_moe.routed_expert_norm.weight", &["ffn_routed_norm.weight"]),
            ]
        ),
        steps: joined!(
            KDA_STEPS,
            &[
                ("self_attn.A_log", &[Step::Decay]),
                ("self_attention_res_norm.weight", &[Step::Product]),
                ("self_attention_res_proj.weight", &[Step::Product]),
                ("mlp_res_norm.weight", &[Step::Product]),
                ("mlp_res_proj.weight", &[Step::Product]),
                ("output_attn_res_norm.weight", &[Step::Product]),
                ("output_attn_res_proj.weight", &[Step::Product]),
            ]
        ),
        kv_heads: KvHeads::One,
        fixed: &[("mla_use_nope", Fixed::True), ("moe_router_activation_func", Fixed::Text("sigmoid"))],
        head_dim: HeadDim::Implied,
        more_keys: &[
            Key::VocabSize,
            Key::KvHeadsIn("linear_attn_config.full_attn_layers"),
            Key::Whole(&["linear_attn_config.short_conv_kernel_size"], "ssm.conv_kernel"),
            Key::Whole(&["linear_attn_config.head_dim"], "kda.head_dim"),
            Key::Fraction(&["linear_attn_config.gate_lower_bound"], "kda.gate_lower_bound"),
            Key::Whole(&["q_lora_rank"], "attention.q_lora_rank"),
            Key::Whole(&["kv_lora_rank"], "attention.kv_lora_rank"),
            Key::Whole(&["qk_rope_head_dim"], "rope.dimension_count"),
            Key::Sum(&["kv_lora_rank"], &["qk_rope_head_dim"], "attention.key_length"),
            Key::Whole(&["kv_lora_rank"], "attention.value_length"),
            Key::Sum(&["qk_nope_head_dim"], &["qk_rope_head_dim"], "attention.key_length_mla"),
            Key::Whole(&["v_head_dim"], "attention.value_length_mla"),
            Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length"),
            Key::Whole(&["num_shared_experts"], "expert_shared_count"),
            Key::Whole(&["first_k_dense_replace"], "leading_dense_block_count"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::Flag("moe_renormalize", "expert_weights_norm", false),
            Key::Constant("expert_gating_func", 2),
            Key::Whole(&["routed_expert_hidden_size"], "expert_latent_length"),
            Key::Fraction(&["activation_situ_beta"], "activation.situ_beta"),
            Key::Fraction(&["activation_situ_linear_beta"], "activation.situ_linear_beta"),
            Key::Whole(&["attn_res_block_size"], "attn_res.block_size"),
        ],
        tokenizer: Tokenizer::Json,
        token_keys: &[TokenKey::Stated("eos_token_id", "eos_token_id"), TokenKey::TemplateElsewhere],
        ..Checkpoint::USUAL
    }],
    ..KIMI_LINEAR
};

/// Groups that both kinds of blocks begin with.
const BAILINGMOE3_MIXING: &[Group] = &[
    ATTN_NORM,
    QUERIES,
    RANKED_QUERIES_OPTIONAL,
    LATENT,
    EXPANSION_BY_HEAD,
    ATTN_HEAD_GATE,
    LATENT_OUT,
    KIMI,
    KIMI_RATES,
    WIDE_GATES,
    FFN_NORM,
];

/// `bailingmoe3`.
pub const BAILINGMOE3: Arch = Arch {
    name: "bailingmoe3",
    mtp: MTP_OR_OUT_NORM,
    draft_state: DraftState::Normed,
    models: "Ling 3",
    ends: &[ENDS, OUTPUT_OR_TIED],
    block: begun!(BAILINGMOE3_MIXING, GATED_FFN),
    expert_block: begun!(BAILINGMOE3_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED),
    mixing: Mixing::ByHeads(Recurrence::Bounded),
    rope: RopeRule { partial: true, sections: Sections::IfAny, ..RopeRule::ADJACENT },
    feed_forward: FeedForward { clamp: GateClamp::After, ..KIMI_LINEAR.feed_forward },
    experts: ExpertRule { normalize: Normalize::Key, shared: SharedWidth::KeyOrCountOrOne, ..KIMI_LINEAR.experts },
    scaled: &[],
    checkpoints: &[&Checkpoint {
        classes: &["BailingMoeV3ForCausalLM"],
        names: DOWN_GATE_UP,
        more_names: &[
            ("word_embeddings.weight", &["token_embd.weight"]),
            ("attention.q_proj.weight", &["attn_q.weight"]),
            ("attention.k_proj.weight", &["attn_k.weight"]),
            ("attention.v_proj.weight", &["attn_v.weight"]),
            ("attention.o_proj.weight", &["attn_output.weight"]),
            ("attention.q_a_proj.weight", &["attn_q_a.weight"]),
            ("attention.q_a_layernorm.weight", &["attn_q_a_norm.weight"]),
            ("attention.q_b_proj.weight", &["attn_q_b.weight"]),
            ("attention.kv_a_proj_with_mqa.weight", &["attn_kv_a_mqa.weight"]),
            ("attention.kv_a_layernorm.weight", &["attn_kv_a_norm.weight"]),
            ("attention.kv_b_proj.weight", &["attn_k_b.weight", "attn_v_b.weight"]),
            ("attention.q_conv1d.weight", &["ssm_conv1d_q.weight"]),
            ("attention.k_conv1d.weight", &["ssm_conv1d_k.weight"]),
            ("attention.v_conv1d.weight", &["ssm_conv1d_v.weight"]),
            ("attention.A_log", &["ssm_a"]),
            ("attention.dt_bias", &["ssm_dt.bias"]),
            ("attention.b_proj.weight", &["ssm_beta.weight"]),
            ("attention.f_proj.weight", &["ssm_f_a.weight"]),
            // of blocks that attend, and of the others
            ("attention.g_proj.weight", &["attn_gate.weight"]),
            ("attention.g_proj.weight", &["ssm_g_a.weight"]),
            ("attention.o_norm.weight", &["ssm_norm.weight"]),
        ],
        steps: &[
            ("attention.kv_b_proj.weight", &[Step::KeysAndValues]),
            ("attention.A_log", &[Step::Exponential]),
            ("attention.q_conv1d.weight", &[Step::OneRow]),
            ("attention.k_conv1d.weight", &[Step::OneRow]),
            ("attention.v_conv1d.weight", &[Step::OneRow]),
        ],
        fixed: &[
            ("no_kda_lora", Fixed::True),
            ("kda_safe_gate", Fixed::True),
            ("gated_attention_proj_granularity_type", Fixed::Text("head_wise")),
        ],
        kv_heads: KvHeads::One,
        more_keys: &[
            Key::KvHeadsOfGroups("layer_group_size"),
            Key::VocabSize,
            Key::Whole(&["short_conv_kernel_size"], "ssm.conv_kernel"),
            Key::Whole(&["head_dim"], "kda.head_dim"),
            Key::Flag("kda_safe_gate", "kda.safe_gate", true),
            Key::Fraction(&["kda_lower_bound"], "kda.gate_lower_bound"),
            Key::Whole(&["q_lora_rank"], "attention.q_lora_rank"),
            Key::Whole(&["kv_lora_rank"], "attention.kv_lora_rank"),
            Key::Whole(&["qk_rope_head_dim"], "rope.dimension_count"),
            Key::Sum(&["kv_lora_rank"], &["qk_rope_head_dim"], "attention.key_length"),
            Key::Sum(&["qk_nope_head_dim"], &["qk_rope_head_dim"], "attention.key_length_mla"),
            Key::Whole(&["v_head_dim"], "attention.value_length_mla"),
            Key::Whole(&["moe_intermediate_size"], "expert_feed_forward_length"),
            Key::Whole(&["moe_shared_expert_intermediate_size"], "expert_shared_feed_forward_length"),
            Key::WholeOr(&["num_shared_experts"], "expert_shared_count", 1),
            Key::Whole(&["first_k_dense_replace"], "leading_dense_block_count"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::Flag("norm_topk_prob", "expert_weights_norm", false),
            Key::Limits("expert_swiglu_limit_list", "swiglu_clamp_exp"),
            Key::Limits("share_expert_swiglu_limit_list", "swiglu_clamp_shexp"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ..KIMI_LINEAR
};
