//! Groups of tensors of models that make vectors of texts.

use super::expert_parts;
use super::parts::{Group, PLAIN_FFN};
use super::tensor::Extent::{Buckets, Classes, Embd, Ff, Heads, Kv, One, Projected, Q, TokenTypes, UpOrBoth};
use super::tensor::Role::{Bias, ByColumns, ByRows, Norm, Vector};
use super::tensor::{Extent, Role, Tensor};

const fn tensor(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

const fn named(gguf: &'static str, hf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, hf, shape, role)
}

/// A vector for every kind of token; all tokens get that of the first kind.
pub const TOKEN_TYPES: Group = &[tensor("token_types.weight", &[TokenTypes, Embd], Vector)];
/// The same, which some models have.
pub const TOKEN_TYPES_OPTIONAL: Group = &[TOKEN_TYPES[0].optional()];
/// The norm of the token embeddings without a bias.
pub const TOKEN_NORM_BARE: Group = &[tensor("token_embd_norm.weight", &[Embd], Norm)];
/// The norm of the hidden states under the name that encoders give it.
pub const ENCODER_NORM: Group =
    &[named("enc.output_norm.weight", "encoder.final_layer_norm.weight", &[Embd], Norm)
        .stands_for("output_norm.weight")];

/// T5's encoder: norms, queries, keys and values, biases by distance, which some blocks have, and outputs.
pub const T5_ATTENTION: Group = &[
    named("enc.attn_norm.weight", "encoder.layer.0.layer_norm.weight", &[Embd], Norm).stands_for("attn_norm.weight"),
    named("enc.attn_q.weight", "encoder.layer.0.SelfAttention.q.weight", &[Q, Embd], ByRows)
        .stands_for("attn_q.weight"),
    named("enc.attn_k.weight", "encoder.layer.0.SelfAttention.k.weight", &[Kv, Embd], ByRows)
        .stands_for("attn_k.weight"),
    named("enc.attn_v.weight", "encoder.layer.0.SelfAttention.v.weight", &[Kv, Embd], ByRows)
        .stands_for("attn_v.weight"),
    named(
        "enc.attn_rel_b.weight",
        "encoder.layer.0.SelfAttention.relative_attention_bias.weight",
        &[Buckets, Heads],
        ByRows,
    )
    .stands_for("attn_rel_b.weight")
    .optional(),
    named("enc.attn_o.weight", "encoder.layer.0.SelfAttention.o.weight", &[Embd, Q], ByColumns)
        .stands_for("attn_output.weight"),
];
/// Its feed-forward network, which may have a gate.
pub const T5_FFN: Group = &[
    named("enc.ffn_norm.weight", "encoder.layer.1.layer_norm.weight", &[Embd], Norm).stands_for("ffn_norm.weight"),
    named("enc.ffn_gate.weight", "encoder.layer.1.DenseReluDense.wi_0.weight", &[Ff, Embd], ByRows)
        .stands_for("ffn_gate.weight")
        .optional(),
    named("enc.ffn_up.weight", "encoder.layer.1.DenseReluDense.wi.weight", &[Ff, Embd], ByRows)
        .stands_for("ffn_up.weight"),
    named("enc.ffn_down.weight", "encoder.layer.1.DenseReluDense.wo.weight", &[Embd, Ff], ByColumns)
        .stands_for("ffn_down.weight"),
];

/// The norm of the hidden states under the name that decoders beside an encoder give it.
pub const DECODER_NORM: Group =
    &[named("dec.output_norm.weight", "decoder.final_layer_norm.weight", &[Embd], Norm)
        .stands_for("output_norm.weight")];
/// T5's decoder: norms, queries, keys and values, biases by distance, which some blocks have, and outputs.
pub const T5_DECODER_ATTENTION: Group = &[
    named("dec.attn_norm.weight", "decoder.layer.0.layer_norm.weight", &[Embd], Norm).stands_for("attn_norm.weight"),
    named("dec.attn_q.weight", "decoder.layer.0.SelfAttention.q.weight", &[Q, Embd], ByRows)
        .stands_for("attn_q.weight"),
    named("dec.attn_k.weight", "decoder.layer.0.SelfAttention.k.weight", &[Kv, Embd], ByRows)
        .stands_for("attn_k.weight"),
    named("dec.attn_v.weight", "decoder.layer.0.SelfAttention.v.weight", &[Kv, Embd], ByRows)
        .stands_for("attn_v.weight"),
    named(
        "dec.attn_rel_b.weight",
        "decoder.layer.0.SelfAttention.relative_attention_bias.weight",
        &[Buckets, Heads],
        ByRows,
    )
    .stands_for("attn_rel_b.weight")
    .optional(),
    named("dec.attn_o.weight", "decoder.layer.0.SelfAttention.o.weight", &[Embd, Q], ByColumns)
        .stands_for("attn_output.weight"),
];
/// Its attention to the encoder's states.
pub const T5_CROSS_ATTENTION: Group = &[
    named("dec.cross_attn_norm.weight", "decoder.layer.1.layer_norm.weight", &[Embd], Norm)
        .stands_for("cross_attn_norm.weight"),
    named("dec.cross_attn_q.weight", "decoder.layer.1.EncDecAttention.q.weight", &[Q, Embd], ByRows)
        .stands_for("cross_attn_q.weight"),
    named("dec.cross_attn_k.weight", "decoder.layer.1.EncDecAttention.k.weight", &[Kv, Embd], ByRows)
        .stands_for("cross_attn_k.weight"),
    named("dec.cross_attn_v.weight", "decoder.layer.1.EncDecAttention.v.weight", &[Kv, Embd], ByRows)
        .stands_for("cross_attn_v.weight"),
    named("dec.cross_attn_o.weight", "decoder.layer.1.EncDecAttention.o.weight", &[Embd, Q], ByColumns)
        .stands_for("cross_attn_output.weight"),
];
/// Biases by distance of that attention, which some checkpoints have and nobody adds.
pub const T5_CROSS_BIASES: Group = &[named(
    "dec.cross_attn_rel_b.weight",
    "decoder.layer.1.EncDecAttention.relative_attention_bias.weight",
    &[Buckets, Heads],
    ByRows,
)
.optional()];
/// Its feed-forward network, which may have a gate.
pub const T5_DECODER_FFN: Group = &[
    named("dec.ffn_norm.weight", "decoder.layer.2.layer_norm.weight", &[Embd], Norm).stands_for("ffn_norm.weight"),
    named("dec.ffn_gate.weight", "decoder.layer.2.DenseReluDense.wi_0.weight", &[Ff, Embd], ByRows)
        .stands_for("ffn_gate.weight")
        .optional(),
    named("dec.ffn_up.weight", "decoder.layer.2.DenseReluDense.wi.weight", &[Ff, Embd], ByRows)
        .stands_for("ffn_up.weight"),
    named("dec.ffn_down.weight", "decoder.layer.2.DenseReluDense.wo.weight", &[Embd, Ff], ByColumns)
        .stands_for("ffn_down.weight"),
];

/// Norms of the sum behind attention and of that behind the feed-forward network.
pub const NORMS_OF_SUMS: Group = &[
    tensor("attn_output_norm.weight", &[Embd], Norm),
    tensor("attn_output_norm.bias", &[Embd], Bias),
    tensor("layer_output_norm.weight", &[Embd], Norm),
    tensor("layer_output_norm.bias", &[Embd], Bias),
];
/// A norm of the first of these sums with the block's input added once more, which some models have.
pub const SECOND_NORM_OF_SUM: Group =
    &[tensor("attn_norm_2.weight", &[Embd], Norm).optional(), tensor("attn_norm_2.bias", &[Embd], Bias).optional()];
/// The norm before attention, which the first block may lack.
pub const ATTN_NORM_OPTIONAL: Group = &[tensor("attn_norm.weight", &[Embd], Norm).optional()];

/// Up and down projection, with a gate of its own, with the gate in the up projection, or with none.
pub const ANY_FFN: Group = &[
    tensor("ffn_gate.weight", &[Ff, Embd], ByRows).optional(),
    tensor("ffn_up.weight", &[UpOrBoth, Embd], ByRows),
    PLAIN_FFN[1],
    tensor("ffn_up.bias", &[UpOrBoth], Bias).optional(),
    tensor("ffn_down.bias", &[Embd], Bias),
];
/// A router and experts without gates.
pub const PLAIN_EXPERTS: Group = &[expert_parts::EXPERTS[0], expert_parts::EXPERTS[2], expert_parts::EXPERTS[3]];

/// The head of a ranking model, of one layer or two.
pub const RANK_HEAD: Group = &[
    tensor("cls.weight", &[Embd, Embd], ByRows).optional(),
    tensor("cls.bias", &[Embd], Bias).optional(),
    CLASSES,
    tensor("cls.output.bias", &[Classes], Bias).optional(),
];
const CLASSES: Tensor = tensor("cls.output.weight", &[Classes, Embd], ByRows).optional();
/// The same with a norm between the layers.
pub const NORMED_RANK_HEAD: Group = &[
    RANK_HEAD[0],
    tensor("cls.norm.weight", &[Embd], Norm).optional(),
    CLASSES,
    tensor("cls.output.bias", &[Classes], Bias).optional(),
];
/// A head of one layer without a bias.
pub const BARE_RANK_HEAD: Group = &[CLASSES];
/// A head of one layer with one output: Jina's.
pub const ONE_RANK_HEAD: Group =
    &[tensor("cls.weight", &[One, Embd], ByRows).optional(), tensor("cls.bias", &[One], Bias).optional()];

/// Projections behind the pooling, which some files have.
pub const PROJECTIONS: Group = &[
    tensor("dense_2.weight", &[Projected, Embd], ByRows).optional(),
    tensor("dense_3.weight", &[Embd, Projected], ByColumns).optional(),
];
