//! MiniMax 01: lightning attention in most blocks, whose sublayers add to their normed input. MiniMax M3: attention to
//! blocks of positions that an indexer chooses. Without flash attention, which is what trine computes, the reference
//! attends to all positions and does not use the indexer's tensors.

use super::llama::MIXTRAL;
use crate::arch::expert_parts::{CHOICE_BIAS_REQUIRED, EXPERTS, SHARED};
use crate::arch::parts::{
    ATTN_NORM, ATTN_OUT, ENDS, FFN_NORM, GATED_FFN, Group, HEAD_NORMS, OUTPUT_REQUIRED, QKV, QKV_BIAS_OPTIONAL, begun,
    beside,
};
use crate::arch::recurrent_parts::LIGHTNING;
use crate::arch::rules::{
    ExpertRule, FeedForward, GatingRule, Mixing, Recurrence, Residual, ResidualScale, RopeRule, SharedWidth,
};
use crate::arch::tensor::Role::{Norm, Router};
use crate::arch::{Activation, Arch, Checkpoint, Fixed, HeadDim, Key, Rotary, TokenKey, Tokenizer};

/// `minimax-01`.
pub const MINIMAX_01: Arch = Arch {
    name: "minimax-01",
    models: "MiniMax Text 01, M1",
    expert_block: &[ATTN_NORM, QKV, LIGHTNING, ATTN_OUT, FFN_NORM, EXPERTS, QKV_BIAS_OPTIONAL],
    mixing: Mixing::ByPattern(Recurrence::Lightning),
    residual: Residual::Normed,
    residual_scale: ResidualScale::Key,
    rope: RopeRule::PARTIAL,
    checkpoints: &[&Checkpoint {
        classes: &["MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"],
        names: MIXTRAL,
        more_names: &[
            ("self_attn.qkv_proj.weight", &["attn_qkv.weight"]),
            ("self_attn.output_gate.weight", &["attn_gate.weight"]),
            ("self_attn.norm.weight", &["attn_norm_2.weight"]),
            ("self_attn.out_proj.weight", &["attn_output.weight"]),
        ],
        head_dim: HeadDim::Implied,
        rotary: Rotary::Stated("rotary_dim"),
        fixed: &[
            ("layernorm_full_attention_beta", Fixed::Number(1.0)),
            ("layernorm_linear_attention_beta", Fixed::Number(1.0)),
            ("layernorm_mlp_beta", Fixed::Number(1.0)),
        ],
        more_keys: &[Key::Fraction(&["layernorm_full_attention_alpha"], "residual_scale"), Key::RopeDimensions],
        tokenizer: Tokenizer::Json,
        token_keys: &[TokenKey::TemplateFile],
        ..Checkpoint::USUAL
    }],
    ..Arch::DENSE
};

/// Groups that both kinds of blocks begin with.
const MINIMAX_M3_MIXING: &[Group] = &[ATTN_NORM, QKV, HEAD_NORMS, ATTN_OUT, FFN_NORM];

/// `minimax-m3`.
pub const MINIMAX_M3: Arch = Arch {
    name: "minimax-m3",
    models: "MiniMax M3",
    ends: &[ENDS, OUTPUT_REQUIRED],
    block: begun!(MINIMAX_M3_MIXING, GATED_FFN, QKV_BIAS_OPTIONAL),
    expert_block: begun!(MINIMAX_M3_MIXING, EXPERTS, CHOICE_BIAS_REQUIRED, SHARED, QKV_BIAS_OPTIONAL),
    rope: RopeRule::PARTIAL,
    feed_forward: FeedForward { activation: Activation::OpenAiSwiglu, ..Arch::DENSE.feed_forward },
    experts: ExpertRule { gating: GatingRule::Key(None), shared: SharedWidth::Count, ..ExpertRule::KEYED },
    checkpoints: &[&Checkpoint {
        classes: &["MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"],
        activations: &["swigluoai"],
        norms_plus_one: true,
        names: MIXTRAL,
        more_names: &[
            ("block_sparse_moe.e_score_correction_bias", &["exp_probs_b.bias"]),
            ("block_sparse_moe.shared_experts.gate_proj.weight", &["ffn_gate_shexp.weight"]),
            ("block_sparse_moe.shared_experts.up_proj.weight", &["ffn_up_shexp.weight"]),
            ("block_sparse_moe.shared_experts.down_proj.weight", &["ffn_down_shexp.weight"]),
        ],
        beside: &[
            beside("self_attn.index_q_proj.weight", "indexer.q_proj.weight", Router),
            beside("self_attn.index_k_proj.weight", "indexer.k_proj.weight", Router),
            beside("self_attn.index_q_norm.weight", "indexer.q_norm.weight", Norm),
            beside("self_attn.index_k_norm.weight", "indexer.k_norm.weight", Norm),
        ],
        head_dim: HeadDim::Implied,
        width_names: &["dense_intermediate_size", "intermediate_size"],
        rotary: Rotary::Stated("rotary_dim"),
        more_keys: &[
            Key::Whole(&["intermediate_size"], "expert_feed_forward_length"),
            Key::RopeDimensions,
            Key::Whole(&["n_shared_experts"], "expert_shared_count"),
            Key::Fraction(&["routed_scaling_factor"], "expert_weights_scale"),
            Key::ConstantFlag("expert_weights_norm", true),
            Key::Whole(&["sparse_attention_config.sparse_num_index_heads"], "attention.indexer.head_count"),
            Key::Whole(&["sparse_attention_config.sparse_index_dim"], "attention.indexer.key_length"),
            Key::Whole(&["sparse_attention_config.sparse_topk_blocks"], "attention.indexer.top_k"),
            Key::Whole(&["sparse_attention_config.sparse_block_size"], "attention.indexer.block_size"),
            Key::Whole(&["sparse_attention_config.sparse_local_block"], "attention.indexer.local_blocks"),
            Key::LeadingZeros("moe_layer_freq"),
        ],
        tokenizer: Tokenizer::Json,
        ..Checkpoint::USUAL
    }],
    ignored: &["indexer.q_proj.weight", "indexer.k_proj.weight", "indexer.q_norm.weight", "indexer.k_norm.weight"],
    ..Arch::DENSE
};
