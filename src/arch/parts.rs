//! Groups of tensors that many architectures share.
//!
//! An architecture's block is a list of such groups, and says with them which operations it has: a norm that is not
//! listed is not computed, a bias that is not listed is an error in the file.

use super::tensor::Extent::{
    Context, Embd, Ff, Fixed, HalfFf, Head, HeadPairs, Heads, Keys, KvHeads, One, Outputs, Q, QAndGates, RopePairs,
    StreamMixes, Streams, StreamsTimesEmbd, TwiceFf, TwiceStreams, Two, Values, Vocab,
};
use super::tensor::Role::{
    Bias, ByColumns, ByRows, Embedding, Norm, Output, PlainNorm, Positions, RopeFactors, Vector,
};
use super::tensor::{Extent, Role, Tensor};

/// A tensor that no checkpoint is converted to yet.
pub(super) const fn unnamed(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

const fn tensor(gguf: &'static str, hf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, hf, shape, role)
}

/// A tensor, of any shape, that files of an architecture have although the graph does not read it.
pub const fn beside(hf: &'static str, gguf: &'static str, role: Role) -> Tensor {
    Tensor::new(gguf, hf, &[], role).optional()
}

/// Norms of the input of one projection each, under the two names that checkpoints of BitNet give them. Any
/// architecture with such a projection computes them.
#[cfg(feature = "convert")]
pub const INPUT_NORMS: Group = &[
    beside("self_attn.q_proj.rms_norm.weight", "attn_q_norm_in.weight", Norm),
    beside("self_attn.k_proj.rms_norm.weight", "attn_k_norm_in.weight", Norm),
    beside("self_attn.v_proj.rms_norm.weight", "attn_v_norm_in.weight", Norm),
    beside("self_attn.o_proj.rms_norm.weight", "attn_output_norm_in.weight", Norm),
    beside("mlp.gate_proj.rms_norm.weight", "ffn_gate_norm_in.weight", Norm),
    beside("mlp.up_proj.rms_norm.weight", "ffn_up_norm_in.weight", Norm),
    beside("mlp.down_proj.rms_norm.weight", "ffn_down_norm_in.weight", Norm),
    beside("self_attn.q_proj.norm.weight", "attn_q_norm_in.weight", Norm),
    beside("self_attn.k_proj.norm.weight", "attn_k_norm_in.weight", Norm),
    beside("self_attn.v_proj.norm.weight", "attn_v_norm_in.weight", Norm),
    beside("self_attn.o_proj.norm.weight", "attn_output_norm_in.weight", Norm),
    beside("mlp.gate_proj.norm.weight", "ffn_gate_norm_in.weight", Norm),
    beside("mlp.up_proj.norm.weight", "ffn_up_norm_in.weight", Norm),
    beside("mlp.down_proj.norm.weight", "ffn_down_norm_in.weight", Norm),
];

/// A group of tensors.
pub type Group = &'static [Tensor];

/// The groups of a block, of which `$first` stand before those that are named.
macro_rules! begun {
    ($first:expr, $($group:expr),+) => {
        $crate::arch::joined::joined!($first, &[$($group),+])
    };
}
pub(super) use begun;

const TOKEN_EMBD: Tensor = tensor("token_embd.weight", "embed_tokens.weight", &[Vocab, Embd], Embedding);
/// Token embeddings alone.
pub const TOKENS: Group = &[TOKEN_EMBD];
/// The last norm under the name of the embeddings': LFM 2.
pub const END_NORM_AS_TOKENS: Group =
    &[unnamed("token_embd_norm.weight", &[Embd], Norm).stands_for("output_norm.weight")];
/// Token embeddings and the last norm.
pub const ENDS: Group = &[TOKEN_EMBD, tensor("output_norm.weight", "norm.weight", &[Embd], Norm)];
/// The same, where the output matrix stands for embeddings that the file lacks.
pub const ENDS_OR_OUTPUT: Group = &[TOKEN_EMBD.optional(), ENDS[1]];
/// Token embeddings, and a last norm without gains.
pub const PLAIN_ENDS: Group = &[TOKEN_EMBD, unnamed("output_norm.weight", &[Embd], PlainNorm)];
/// Initial state of the low stack of blocks in models that run in cycles.
pub const LOW_STATE: Group = &[unnamed("hrm.z_l_init", &[Embd], Vector)];
/// Weights of the scores of saved residual streams, one vector before each sublayer, in models that have them.
pub const RESIDUAL_SCORES: Group = &[
    unnamed("attn_res_score.weight", &[Embd], Norm).optional(),
    unnamed("ffn_res_score.weight", &[Embd], Norm).optional(),
];
/// The same before the last norm.
pub const RESIDUAL_SCORES_OF_OUTPUT: Group = &[unnamed("output_res_score.weight", &[Embd], Norm).optional()];
/// Projections, biases and scales by which both sublayers of a block read several residual streams and write to them.
pub const CONNECTIONS: Group = &[
    unnamed("hc_attn_fn.weight", &[TwiceStreams, StreamsTimesEmbd], ByRows),
    unnamed("hc_attn_base.weight", &[TwiceStreams], Vector),
    unnamed("hc_attn_scale.weight", &[Two], Vector),
    unnamed("hc_ffn_fn.weight", &[TwiceStreams, StreamsTimesEmbd], ByRows),
    unnamed("hc_ffn_base.weight", &[TwiceStreams], Vector),
    unnamed("hc_ffn_scale.weight", &[Two], Vector),
];
/// The same where the streams are mixed, too.
pub const MIXING_CONNECTIONS: Group = &[
    unnamed("hc_attn_fn.weight", &[StreamMixes, StreamsTimesEmbd], ByRows),
    unnamed("hc_attn_base.weight", &[StreamMixes], Vector),
    unnamed("hc_attn_scale.weight", &[Fixed(3)], Vector),
    unnamed("hc_ffn_fn.weight", &[StreamMixes, StreamsTimesEmbd], ByRows),
    unnamed("hc_ffn_base.weight", &[StreamMixes], Vector),
    unnamed("hc_ffn_scale.weight", &[Fixed(3)], Vector),
];
/// [`CONNECTIONS`] for the last norm, which only reads the streams.
pub const LAST_CONNECTION: Group = &[
    unnamed("output_hc_fn.weight", &[Streams, StreamsTimesEmbd], ByRows),
    unnamed("output_hc_base.weight", &[Streams], Vector),
    unnamed("output_hc_scale.weight", &[One], Vector),
];
/// The bias of the last norm.
pub const OUTPUT_NORM_BIAS: Group = &[tensor("output_norm.bias", "norm.bias", &[Embd], Bias)];
/// The same, which some models have.
pub const OUTPUT_NORM_BIAS_OPTIONAL: Group = &[unnamed("output_norm.bias", &[Embd], Bias).optional()];
/// The norm of the token embeddings.
pub const TOKEN_NORM: Group =
    &[unnamed("token_embd_norm.weight", &[Embd], Norm), unnamed("token_embd_norm.bias", &[Embd], Bias)];
/// The same without gains.
pub const PLAIN_TOKEN_NORM: Group = &[unnamed("token_embd_norm.weight", &[Embd], PlainNorm)];
/// A vector for every position, added to the token embeddings.
pub const POSITIONS: Group = &[unnamed("position_embd.weight", &[Context, Embd], Positions)];
/// The same, which some models have.
pub const POSITIONS_OPTIONAL: Group = &[unnamed("position_embd.weight", &[Context, Embd], Positions).optional()];

const OUTPUT: Tensor = tensor("output.weight", "lm_head.weight", &[Vocab, Embd], Output);
/// The output matrix; without it the embeddings are.
pub const OUTPUT_OR_TIED: Group = &[OUTPUT.optional()];
/// The output matrix, which has to be there.
pub const OUTPUT_REQUIRED: Group = &[OUTPUT];
const LOGIT_BIAS: Tensor = tensor("output.bias", "lm_head.bias", &[Vocab], Bias);
/// A bias on the logits.
pub const OUTPUT_BIAS: Group = &[LOGIT_BIAS.optional()];
/// The same, which has to be there.
pub const OUTPUT_BIAS_REQUIRED: Group = &[LOGIT_BIAS];
/// One set of divisors of RoPE's frequencies for all layers (Llama 3).
pub const ROPE_FACTORS: Group = &[tensor("rope_freqs.weight", "", &[RopePairs], RopeFactors).optional()];

/// Divisors of RoPE's frequencies in layers without a window, for every pair of a head's elements.
pub const ROPE_FACTORS_OF_HEADS: Group = &[tensor("rope_freqs.weight", "", &[HeadPairs], RopeFactors)];

/// Two sets of divisors: for contexts as long as those of the training, and for longer ones (Phi 3).
pub const ROPE_FACTORS_BY_CONTEXT: Group = &[
    unnamed("rope_factors_long.weight", &[RopePairs], RopeFactors).optional(),
    unnamed("rope_factors_short.weight", &[RopePairs], RopeFactors).optional(),
];

/// The norm before attention.
pub const ATTN_NORM: Group = &[tensor("attn_norm.weight", "input_layernorm.weight", &[Embd], Norm)];
/// Its bias.
pub const ATTN_NORM_BIAS: Group = &[tensor("attn_norm.bias", "input_layernorm.bias", &[Embd], Bias)];
/// The same, which some models have.
pub const ATTN_NORM_BIAS_OPTIONAL: Group = &[unnamed("attn_norm.bias", &[Embd], Bias).optional()];
/// A norm before attention without gains.
pub const PLAIN_ATTN_NORM: Group = &[unnamed("attn_norm.weight", &[Embd], PlainNorm)];
/// A norm before attention alone; `attn_norm` is then that before the feed-forward network.
pub const ATTN_NORM_2_OPTIONAL: Group =
    &[unnamed("attn_norm_2.weight", &[Embd], Norm).optional(), unnamed("attn_norm_2.bias", &[Embd], Bias).optional()];
/// Query, key and value projections: three matrices, or their rows in one (`attn_qkv`).
pub const QKV: Group = &[
    tensor("attn_q.weight", "self_attn.q_proj.weight", &[Q, Embd], ByRows).rope_rows(),
    tensor("attn_k.weight", "self_attn.k_proj.weight", &[Keys, Embd], ByRows).rope_rows(),
    tensor("attn_v.weight", "self_attn.v_proj.weight", &[Values, Embd], ByRows),
];

/// Query, key and value projections as rows of one matrix, for checkpoints that have them so. Descriptions list
/// [`QKV`], for which a file may have this.
#[cfg(feature = "convert")]
pub const FUSED_QKV: Group = &[
    unnamed("attn_qkv.weight", &[super::Extent::QueriesKeysValues, Embd], ByRows),
    unnamed("attn_qkv.bias", &[super::Extent::QueriesKeysValues], Bias).optional(),
];

/// The same where a layer may have none for values: they are its keys then.
pub const QKV_OR_QK: Group = &[QKV[0], QKV[1], QKV[2].optional()];

/// The same as [`QKV`], where the query projection gives gates on the heads' outputs too.
pub const GATED_QKV: Group = &[unnamed("attn_q.weight", &[QAndGates, Embd], ByRows), QKV[1], QKV[2]];
/// Their biases, which some models have.
pub const GATED_QKV_BIAS_OPTIONAL: Group =
    &[unnamed("attn_q.bias", &[QAndGates], Bias).optional(), K_BIAS.optional(), V_BIAS.optional()];

const Q_BIAS: Tensor = tensor("attn_q.bias", "self_attn.q_proj.bias", &[Q], Bias).rope_rows();
const K_BIAS: Tensor = tensor("attn_k.bias", "self_attn.k_proj.bias", &[Keys], Bias).rope_rows();
const V_BIAS: Tensor = tensor("attn_v.bias", "self_attn.v_proj.bias", &[Values], Bias);
/// Biases of the three.
pub const QKV_BIAS: Group = &[Q_BIAS, K_BIAS, V_BIAS];
/// The same, which some models of an architecture have.
pub const QKV_BIAS_OPTIONAL: Group = &[Q_BIAS.optional(), K_BIAS.optional(), V_BIAS.optional()];
/// A bias of the output projection that some models have.
pub const ATTN_OUT_BIAS_OPTIONAL: Group =
    &[tensor("attn_output.bias", "self_attn.o_proj.bias", &[Embd], Bias).optional()];

/// Norms of every query and key head.
pub const HEAD_NORMS: Group = &[
    tensor("attn_q_norm.weight", "self_attn.q_norm.weight", &[Head], Norm),
    tensor("attn_k_norm.weight", "self_attn.k_norm.weight", &[Head], Norm),
];
/// Norms over all of the queries and all of the keys.
pub const QK_NORMS: Group = &[
    tensor("attn_q_norm.weight", "self_attn.q_norm.weight", &[Q], Norm),
    tensor("attn_k_norm.weight", "self_attn.k_norm.weight", &[Keys], Norm),
];
/// The same, which some models have.
pub const HEAD_NORMS_OPTIONAL: Group =
    &[unnamed("attn_q_norm.weight", &[Head], Norm).optional(), unnamed("attn_k_norm.weight", &[Head], Norm).optional()];
/// Norms of every head with gains of its own, which some models have.
pub const OWN_HEAD_NORMS_OPTIONAL: Group = &[
    tensor("attn_q_norm.weight", "self_attn.q_norm.weight", &[Heads, Head], Norm).optional(),
    tensor("attn_k_norm.weight", "self_attn.k_norm.weight", &[KvHeads, Head], Norm).optional(),
];
/// The same, which have to be there.
pub const OWN_HEAD_NORMS: Group =
    &[unnamed("attn_q_norm.weight", &[Heads, Head], Norm), unnamed("attn_k_norm.weight", &[KvHeads, Head], Norm)];
/// The same with biases, which some models have.
pub const OWN_HEAD_NORMS_BIASED: Group = &[
    OWN_HEAD_NORMS[0],
    OWN_HEAD_NORMS[1],
    unnamed("attn_q_norm.bias", &[Heads, Head], Bias).optional(),
    unnamed("attn_k_norm.bias", &[KvHeads, Head], Bias).optional(),
];
/// Norms of every head without gains.
pub const PLAIN_HEAD_NORMS: Group =
    &[unnamed("attn_q_norm.weight", &[Head], PlainNorm), unnamed("attn_k_norm.weight", &[Head], PlainNorm)];
/// Norms of every value head without gains.
pub const PLAIN_VALUE_NORM: Group = &[unnamed("attn_v_norm.weight", &[Head], PlainNorm)];
/// Norms of every head, of queries with one gain each and of keys without.
pub const QUERY_GAINS: Group =
    &[unnamed("attn_q_norm.weight", &[Heads, One], Norm), unnamed("attn_k_norm.weight", &[Head], PlainNorm)];
/// Norms with biases over all of the queries and all of the keys, which some models have.
pub const QK_NORMS_OPTIONAL: Group = &[
    unnamed("attn_q_norm.weight", &[Embd], Norm).optional(),
    unnamed("attn_q_norm.bias", &[Embd], Bias).optional(),
    unnamed("attn_k_norm.weight", &[Embd], Norm).optional(),
    unnamed("attn_k_norm.bias", &[Embd], Bias).optional(),
];
/// The score of a cell that every query sees and that has no value, per head.
pub const SINKS: Group = &[unnamed("attn_sinks.weight", &[Heads], Vector)];
/// The same, which some models have.
pub const SINKS_OPTIONAL: Group = &[unnamed("attn_sinks.weight", &[Heads], Vector).optional()];
/// A gate on every element of the heads' outputs.
pub const ATTN_GATE: Group = &[unnamed("attn_gate.weight", &[Outputs, Embd], ByRows)];
/// A gate on every head's output.
pub const ATTN_HEAD_GATE: Group = &[unnamed("attn_gate.weight", &[Heads, Embd], ByRows)];
/// The same, which some models have.
pub const ATTN_HEAD_GATE_OPTIONAL: Group = &[ATTN_HEAD_GATE[0].optional()];
/// BitNet's norm of the heads' outputs.
pub const ATTN_SUB_NORM: Group = &[tensor("attn_sub_norm.weight", "self_attn.attn_sub_norm.weight", &[Outputs], Norm)];
/// The output projection.
pub const ATTN_OUT: Group = &[tensor("attn_output.weight", "self_attn.o_proj.weight", &[Embd, Outputs], ByColumns)];
/// The bias of the output projection.
pub const ATTN_OUT_BIAS: Group = &[tensor("attn_output.bias", "self_attn.o_proj.bias", &[Embd], Bias)];
/// The norm of what attention adds to the residual stream, under the name that Grok's files give it.
pub const ATTN_OUT_NORM: Group =
    &[unnamed("attn_output_norm.weight", &[Embd], Norm).stands_for("post_attention_norm.weight")];
/// The same, where the name ends too early: PLaMo 3.
pub const ATTN_POST_NORM_BARE: Group =
    &[unnamed("post_attention_norm", &[Embd], Norm).stands_for("post_attention_norm.weight")];
/// The norm of what attention adds to the residual stream.
pub const ATTN_POST_NORM: Group =
    &[tensor("post_attention_norm.weight", "post_attention_layernorm.weight", &[Embd], Norm)];

/// The norm before the feed-forward network, under the name that LLaMA's checkpoints give it.
pub const FFN_NORM: Group = &[tensor("ffn_norm.weight", "post_attention_layernorm.weight", &[Embd], Norm)];
/// Its bias.
pub const FFN_NORM_BIAS: Group = &[NORM_BIAS];
const NORM_BIAS: Tensor = tensor("ffn_norm.bias", "post_attention_layernorm.bias", &[Embd], Bias);
/// The same, which some models have.
pub const FFN_NORM_BIAS_OPTIONAL: Group = &[NORM_BIAS.optional()];
/// A norm before the feed-forward network that some models have, with its bias.
pub const FFN_NORM_OPTIONAL: Group = &[FFN_NORM[0].optional(), NORM_BIAS.optional()];
/// A norm before the feed-forward network without gains.
pub const PLAIN_FFN_NORM: Group = &[unnamed("ffn_norm.weight", &[Embd], PlainNorm)];
/// The norm before the feed-forward network, called after what stands before it.
pub const FFN_NORM_AFTER_ATTN: Group =
    &[unnamed("post_attention_norm.weight", &[Embd], Norm).stands_for("ffn_norm.weight")];
/// The same where the name ends too early: Falcon H1.
pub const FFN_NORM_BARE: Group = &[unnamed("ffn_norm", &[Embd], Norm).stands_for("ffn_norm.weight")];
/// The same under the name that DBRX's files give it.
pub const FFN_NORM_ATTN_OUT: Group = &[unnamed("attn_output_norm.weight", &[Embd], Norm).stands_for("ffn_norm.weight")];
/// The same where `post_attention_layernorm` is what its name says: Gemma.
pub const PRE_FFN_NORM: Group = &[tensor("ffn_norm.weight", "pre_feedforward_layernorm.weight", &[Embd], Norm)];
/// Gate, up and down projection.
pub const GATED_FFN: Group = &[
    tensor("ffn_gate.weight", "mlp.gate_proj.weight", &[Ff, Embd], ByRows),
    tensor("ffn_up.weight", "mlp.up_proj.weight", &[Ff, Embd], ByRows),
    tensor("ffn_down.weight", "mlp.down_proj.weight", &[Embd, Ff], ByColumns),
];
/// The matrices of a dense block, as most architectures have them.
pub const DENSE_MATRICES: [Group; 3] = [QKV, ATTN_OUT, GATED_FFN];
const UP: Tensor = GATED_FFN[1];
const DOWN: Tensor = GATED_FFN[2];
/// Up and down projection without a gate.
pub const PLAIN_FFN: Group = &[UP, DOWN];
/// Gate and up projection in one matrix, and down projection.
pub const FUSED_FFN: Group = &[unnamed("ffn_up.weight", &[TwiceFf, Embd], ByRows), DOWN];
/// Gate, up and down projection of half the width.
pub const HALF_FFN: Group = &[
    unnamed("ffn_gate.weight", &[HalfFf, Embd], ByRows),
    unnamed("ffn_up.weight", &[HalfFf, Embd], ByRows),
    unnamed("ffn_down.weight", &[Embd, HalfFf], ByColumns),
];
/// Gate, up and down projection that some models have beside experts.
pub const GATED_FFN_OPTIONAL: Group =
    &[unnamed("ffn_gate.weight", &[Ff, Embd], ByRows).optional(), UP.optional(), DOWN.optional()];
/// Gate, up and down projection as wide as the residual stream.
pub const SQUARE_FFN: Group = &[
    unnamed("ffn_gate.weight", &[Embd, Embd], ByRows),
    unnamed("ffn_up.weight", &[Embd, Embd], ByRows),
    unnamed("ffn_down.weight", &[Embd, Embd], ByColumns),
];
const GATE_BIAS: Tensor = tensor("ffn_gate.bias", "mlp.gate_proj.bias", &[Ff], Bias);
const UP_BIAS: Tensor = tensor("ffn_up.bias", "mlp.up_proj.bias", &[Ff], Bias);
const DOWN_BIAS: Tensor = tensor("ffn_down.bias", "mlp.down_proj.bias", &[Embd], Bias);
/// Biases of up and down projection.
pub const PLAIN_FFN_BIAS: Group = &[UP_BIAS, DOWN_BIAS];
/// The same, which some models have.
pub const PLAIN_FFN_BIAS_OPTIONAL: Group = &[UP_BIAS.optional(), DOWN_BIAS.optional()];
/// Biases of gate, up and down projection.
pub const FFN_BIAS: Group = &[GATE_BIAS, UP_BIAS, DOWN_BIAS];
/// Divisors of the activation function's output, which some models have.
pub const ACTIVATION_SCALES: Group = &[unnamed("ffn.act.scales", &[Ff], Vector).optional()];
/// A factor on the residual stream behind a block, which some models have.
pub const BLOCK_SCALE: Group =
    &[unnamed("layer_output_scale.weight", &[One], Vector).optional().stands_for("layer_scale.weight")];
/// A factor on the embeddings, which are added once more after the block.
pub const BLOCK_SKIP: Group = &[unnamed("layer_output_scale.weight", &[One], Vector)];
/// Biases of the three that some models have.
pub const FFN_BIAS_OPTIONAL: Group = &[GATE_BIAS.optional(), UP_BIAS.optional(), DOWN_BIAS.optional()];
/// BitNet's norm of the gated activations.
pub const FFN_SUB_NORM: Group = &[tensor("ffn_sub_norm.weight", "mlp.ffn_sub_norm.weight", &[Ff], Norm)];
/// The norm of what the feed-forward network adds to the residual stream, where the name ends too early: PLaMo 3.
pub const FFN_POST_NORM_BARE: Group = &[unnamed("post_ffw_norm", &[Embd], Norm).stands_for("post_ffw_norm.weight")];
/// The same under the two names that Grok's files give it.
pub const LAYER_OUT_NORM: Group = &[
    unnamed("post_ffw_norm.weight", &[Embd], Norm),
    unnamed("layer_output_norm.weight", &[Embd], Norm).optional().stands_for("post_ffw_norm.weight"),
];
/// The norm of what the feed-forward network adds to the residual stream.
pub const FFN_POST_NORM: Group = &[tensor("post_ffw_norm.weight", "post_feedforward_layernorm.weight", &[Embd], Norm)];
