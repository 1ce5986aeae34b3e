//! Groups of tensors that many architectures share.
//!
//! An architecture's block is a list of such groups, and says with them which operations it has: a norm that is not
//! listed is not computed, a bias that is not listed is an error in the file.

use super::tensor::Extent::{Embd, ExpertFf, Experts, Ff, Head, Kv, Q, RopePairs, Vocab};
use super::tensor::Role::{Bias, ByColumns, ByRows, Embedding, Norm, Output, RopeFactors, Router};
use super::tensor::{Extent, Role, Tensor};

const fn tensor(
    gguf: &'static str,
    hf: &'static str,
    shape: &'static [Extent],
    role: Role,
) -> Tensor {
    Tensor::new(gguf, hf, shape, role)
}

/// A group of tensors.
pub type Group = &'static [Tensor];

/// Token embeddings and the last norm.
pub const ENDS: Group = &[
    tensor(
        "token_embd.weight",
        "model.embed_tokens.weight",
        &[Vocab, Embd],
        Embedding,
    ),
    tensor("output_norm.weight", "model.norm.weight", &[Embd], Norm),
];

const OUTPUT: Tensor = tensor("output.weight", "lm_head.weight", &[Vocab, Embd], Output);
/// The output matrix; without it the embeddings are.
pub const OUTPUT_OR_TIED: Group = &[OUTPUT.optional()];
/// The output matrix, which has to be there.
pub const OUTPUT_REQUIRED: Group = &[OUTPUT];
/// A bias on the logits.
pub const OUTPUT_BIAS: Group = &[tensor("output.bias", "lm_head.bias", &[Vocab], Bias).optional()];
/// One set of divisors of RoPE's frequencies for all layers (Llama 3).
pub const ROPE_FACTORS: Group =
    &[tensor("rope_freqs.weight", "", &[RopePairs], RopeFactors).optional()];

/// The norm before attention.
pub const ATTN_NORM: Group = &[tensor(
    "attn_norm.weight",
    "input_layernorm.weight",
    &[Embd],
    Norm,
)];
/// Query, key and value projections.
pub const QKV: Group = &[
    tensor(
        "attn_q.weight",
        "self_attn.q_proj.weight",
        &[Q, Embd],
        ByRows,
    )
    .rope_rows(),
    tensor(
        "attn_k.weight",
        "self_attn.k_proj.weight",
        &[Kv, Embd],
        ByRows,
    )
    .rope_rows(),
    tensor(
        "attn_v.weight",
        "self_attn.v_proj.weight",
        &[Kv, Embd],
        ByRows,
    ),
];

const Q_BIAS: Tensor = tensor("attn_q.bias", "self_attn.q_proj.bias", &[Q], Bias).rope_rows();
const K_BIAS: Tensor = tensor("attn_k.bias", "self_attn.k_proj.bias", &[Kv], Bias).rope_rows();
const V_BIAS: Tensor = tensor("attn_v.bias", "self_attn.v_proj.bias", &[Kv], Bias);
/// Biases of the three, which some models of an architecture have.
pub const QKV_BIAS_OPTIONAL: Group = &[Q_BIAS.optional(), K_BIAS.optional(), V_BIAS.optional()];
/// A bias of the output projection that some models have.
pub const ATTN_OUT_BIAS_OPTIONAL: Group =
    &[tensor("attn_output.bias", "self_attn.o_proj.bias", &[Embd], Bias).optional()];

/// Norms of every query and key head.
pub const HEAD_NORMS: Group = &[
    tensor(
        "attn_q_norm.weight",
        "self_attn.q_norm.weight",
        &[Head],
        Norm,
    ),
    tensor(
        "attn_k_norm.weight",
        "self_attn.k_norm.weight",
        &[Head],
        Norm,
    ),
];
/// The same, which some models of an architecture have.
pub const HEAD_NORMS_OPTIONAL: Group = &[HEAD_NORMS[0].optional(), HEAD_NORMS[1].optional()];
/// Norms over all of the queries and all of the keys.
pub const QK_NORMS: Group = &[
    tensor("attn_q_norm.weight", "self_attn.q_norm.weight", &[Q], Norm),
    tensor("attn_k_norm.weight", "self_attn.k_norm.weight", &[Kv], Norm),
];
/// BitNet's norm of the heads' outputs.
pub const ATTN_SUB_NORM: Group = &[tensor(
    "attn_sub_norm.weight",
    "self_attn.attn_sub_norm.weight",
    &[Q],
    Norm,
)];
/// The output projection.
pub const ATTN_OUT: Group = &[tensor(
    "attn_output.weight",
    "self_attn.o_proj.weight",
    &[Embd, Q],
    ByColumns,
)];
/// The norm of what attention adds to the residual stream.
pub const ATTN_POST_NORM: Group = &[tensor(
    "post_attention_norm.weight",
    "post_attention_layernorm.weight",
    &[Embd],
    Norm,
)];

/// The norm before the feed-forward network, under the name that LLaMA's checkpoints give it.
pub const FFN_NORM: Group = &[tensor(
    "ffn_norm.weight",
    "post_attention_layernorm.weight",
    &[Embd],
    Norm,
)];
/// The same where `post_attention_layernorm` is what its name says: Gemma.
pub const PRE_FFN_NORM: Group = &[tensor(
    "ffn_norm.weight",
    "pre_feedforward_layernorm.weight",
    &[Embd],
    Norm,
)];
/// Gate, up and down projection.
pub const GATED_FFN: Group = &[
    tensor(
        "ffn_gate.weight",
        "mlp.gate_proj.weight",
        &[Ff, Embd],
        ByRows,
    ),
    tensor("ffn_up.weight", "mlp.up_proj.weight", &[Ff, Embd], ByRows),
    tensor(
        "ffn_down.weight",
        "mlp.down_proj.weight",
        &[Embd, Ff],
        ByColumns,
    ),
];
/// Biases of the three that some models have.
pub const FFN_BIAS_OPTIONAL: Group = &[
    tensor("ffn_gate.bias", "mlp.gate_proj.bias", &[Ff], Bias).optional(),
    tensor("ffn_up.bias", "mlp.up_proj.bias", &[Ff], Bias).optional(),
    tensor("ffn_down.bias", "mlp.down_proj.bias", &[Embd], Bias).optional(),
];
/// BitNet's norm of the gated activations.
pub const FFN_SUB_NORM: Group = &[tensor(
    "ffn_sub_norm.weight",
    "mlp.ffn_sub_norm.weight",
    &[Ff],
    Norm,
)];
/// The norm of what the feed-forward network adds to the residual stream.
pub const FFN_POST_NORM: Group = &[tensor(
    "post_ffw_norm.weight",
    "post_feedforward_layernorm.weight",
    &[Embd],
    Norm,
)];

/// A router and the matrices of all experts, `[experts][rows][columns]`. Checkpoints have a matrix per expert.
pub const EXPERTS: Group = &[
    tensor("ffn_gate_inp.weight", "", &[Experts, Embd], Router),
    tensor(
        "ffn_gate_exps.weight",
        "",
        &[Experts, ExpertFf, Embd],
        ByRows,
    ),
    tensor("ffn_up_exps.weight", "", &[Experts, ExpertFf, Embd], ByRows),
    tensor(
        "ffn_down_exps.weight",
        "",
        &[Experts, Embd, ExpertFf],
        ByColumns,
    ),
];
