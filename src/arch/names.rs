//! Names of a block's tensors that several classes of checkpoints share, beside those of the descriptions.

use super::checkpoint::Name;

/// Names within a block, and what they become in architectures that have it. Of several for one name the first counts
/// that the architecture has.
pub(crate) const KNOWN: &[Name] = &[
    // norms
    ("post_attention_layernorm.weight", &["post_attention_norm.weight"]),
    ("post_self_attn_layernorm.weight", &["post_attention_norm.weight"]),
    ("pre_mlp_layernorm.weight", &["ffn_norm.weight"]),
    ("post_mlp_layernorm.weight", &["post_ffw_norm.weight"]),
    ("input_layernorm.bias", &["attn_norm.bias"]),
    ("post_attention_layernorm.bias", &["ffn_norm.bias"]),
    // attention
    ("self_attn.q_proj.weight", &["attn_q.weight"]),
    ("self_attn.k_proj.weight", &["attn_k.weight"]),
    ("self_attn.v_proj.weight", &["attn_v.weight"]),
    ("self_attn.q_proj.bias", &["attn_q.bias"]),
    ("self_attn.o_proj.weight", &["attn_output.weight"]),
    ("self_attn.q_norm.weight", &["attn_q_norm.weight"]),
    ("self_attn.k_norm.weight", &["attn_k_norm.weight"]),
    ("self_attn.q_layernorm.weight", &["attn_q_norm.weight"]),
    ("self_attn.k_layernorm.weight", &["attn_k_norm.weight"]),
    ("self_attn.query_layernorm.weight", &["attn_q_norm.weight"]),
    ("self_attn.key_layernorm.weight", &["attn_k_norm.weight"]),
    ("self_attn.sinks", &["attn_sinks.weight"]),
    ("self_attn.gate_proj.weight", &["attn_gate.weight"]),
    ("self_attn.g_proj.weight", &["attn_gate.weight"]),
    // latent attention
    ("self_attn.q_a_proj.weight", &["attn_q_a.weight"]),
    ("self_attn.q_a_layernorm.weight", &["attn_q_a_norm.weight"]),
    ("self_attn.q_b_proj.weight", &["attn_q_b.weight"]),
    ("self_attn.kv_a_proj_with_mqa.weight", &["attn_kv_a_mqa.weight"]),
    ("self_attn.kv_a_layernorm.weight", &["attn_kv_a_norm.weight"]),
    ("self_attn.kv_b_proj.weight", &["attn_kv_b.weight"]),
    // the feed-forward network, and experts but for the stacks, whose order is the class's own
    ("mlp.gate_up_proj.weight", &["ffn_up.weight"]),
    ("mlp.gate.e_score_correction_bias", &["exp_probs_b.bias"]),
    ("mlp.gate.e_score_correction.bias", &["exp_probs_b.bias"]),
    ("mlp.expert_bias", &["exp_probs_b.bias"]),
    ("mlp.gate.expert_bias", &["exp_probs_b.bias"]),
    ("mlp.shared_experts.gate_proj.weight", &["ffn_gate_shexp.weight"]),
    ("mlp.shared_experts.up_proj.weight", &["ffn_up_shexp.weight"]),
    ("mlp.shared_experts.down_proj.weight", &["ffn_down_shexp.weight"]),
    ("mlp.shared_expert.gate_proj.weight", &["ffn_gate_shexp.weight"]),
    ("mlp.shared_expert.up_proj.weight", &["ffn_up_shexp.weight"]),
    ("mlp.shared_expert.down_proj.weight", &["ffn_down_shexp.weight"]),
    ("mlp.shared_mlp.gate_proj.weight", &["ffn_gate_shexp.weight"]),
    ("mlp.shared_mlp.up_proj.weight", &["ffn_up_shexp.weight"]),
    ("mlp.shared_mlp.down_proj.weight", &["ffn_down_shexp.weight"]),
    ("mlp.shared_expert_gate.weight", &["ffn_gate_inp_shexp.weight"]),
];
