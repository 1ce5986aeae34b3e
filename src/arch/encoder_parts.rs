//! Groups of tensors of models that make vectors of texts.

use super::expert_parts;
use super::parts::{Group, PLAIN_FFN, unnamed};
use super::tensor::Extent::{
    Buckets, Classes, Embd, Ff, Heads, Keys, One, Outputs, Projected, Q, TokenTypes, UpOrBoth, Values,
};
use super::tensor::Role::{Bias, ByColumns, ByRows, Norm, Vector};
use super::tensor::Tensor;

/// A vector for every kind of token; all tokens get that of the first kind.
pub const TOKEN_TYPES: Group = &[unnamed("token_types.weight", &[TokenTypes, Embd], Vector)];
/// The same, which some models have.
pub const TOKEN_TYPES_OPTIONAL: Group = &[TOKEN_TYPES[0].optional()];
/// The norm of the token embeddings without a bias.
pub const TOKEN_NORM_BARE: Group = &[unnamed("token_embd_norm.weight", &[Embd], Norm)];
/// The norm of the hidden states under the name that encoders give it.
pub const ENCODER_NORM: Group =
    &[Tensor::new("enc.output_norm.weight", "encoder.final_layer_norm.weight", &[Embd], Norm)
        .stands_for("output_norm.weight")];

/// The norm, queries, keys and values of one of T5's halves, biases by distance, which some blocks have, and outputs.
macro_rules! t5_attention {
    ($gguf:literal, $hf:literal) => {
        &[
            Tensor::new(concat!($gguf, ".attn_norm.weight"), concat!($hf, ".layer.0.layer_norm.weight"), &[Embd], Norm)
                .stands_for("attn_norm.weight"),
            Tensor::new(
                concat!($gguf, ".attn_q.weight"),
                concat!($hf, ".layer.0.SelfAttention.q.weight"),
                &[Q, Embd],
                ByRows,
            )
            .stands_for("attn_q.weight"),
            Tensor::new(
                concat!($gguf, ".attn_k.weight"),
                concat!($hf, ".layer.0.SelfAttention.k.weight"),
                &[Keys, Embd],
                ByRows,
            )
            .stands_for("attn_k.weight"),
            Tensor::new(
                concat!($gguf, ".attn_v.weight"),
                concat!($hf, ".layer.0.SelfAttention.v.weight"),
                &[Values, Embd],
                ByRows,
            )
            .stands_for("attn_v.weight"),
            Tensor::new(
                concat!($gguf, ".attn_rel_b.weight"),
                concat!($hf, ".layer.0.SelfAttention.relative_attention_bias.weight"),
                &[Buckets, Heads],
                ByRows,
            )
            .stands_for("attn_rel_b.weight")
            .optional(),
            Tensor::new(
                concat!($gguf, ".attn_o.weight"),
                concat!($hf, ".layer.0.SelfAttention.o.weight"),
                &[Embd, Outputs],
                ByColumns,
            )
            .stands_for("attn_output.weight"),
        ]
    };
}

/// The norm and the feed-forward network of one of T5's halves, which may have a gate; the number of its layer in a block
/// stands behind the half's name.
macro_rules! t5_ffn {
    ($gguf:literal, $hf:literal) => {
        &[
            Tensor::new(concat!($gguf, ".ffn_norm.weight"), concat!($hf, ".layer_norm.weight"), &[Embd], Norm)
                .stands_for("ffn_norm.weight"),
            Tensor::new(
                concat!($gguf, ".ffn_gate.weight"),
                concat!($hf, ".DenseReluDense.wi_0.weight"),
                &[Ff, Embd],
                ByRows,
            )
            .stands_for("ffn_gate.weight")
            .optional(),
            Tensor::new(
                concat!($gguf, ".ffn_up.weight"),
                concat!($hf, ".DenseReluDense.wi.weight"),
                &[Ff, Embd],
                ByRows,
            )
            .stands_for("ffn_up.weight"),
            Tensor::new(
                concat!($gguf, ".ffn_down.weight"),
                concat!($hf, ".DenseReluDense.wo.weight"),
                &[Embd, Ff],
                ByColumns,
            )
            .stands_for("ffn_down.weight"),
        ]
    };
}

/// T5's encoder.
pub const T5_ATTENTION: Group = t5_attention!("enc", "encoder");
/// Its feed-forward network.
pub const T5_FFN: Group = t5_ffn!("enc", "encoder.layer.1");

/// The norm of the hidden states under the name that decoders beside an encoder give it.
pub const DECODER_NORM: Group =
    &[Tensor::new("dec.output_norm.weight", "decoder.final_layer_norm.weight", &[Embd], Norm)
        .stands_for("output_norm.weight")];
/// T5's decoder.
pub const T5_DECODER_ATTENTION: Group = t5_attention!("dec", "decoder");
/// Its attention to the encoder's states.
pub const T5_CROSS_ATTENTION: Group = &[
    Tensor::new("dec.cross_attn_norm.weight", "decoder.layer.1.layer_norm.weight", &[Embd], Norm)
        .stands_for("cross_attn_norm.weight"),
    Tensor::new("dec.cross_attn_q.weight", "decoder.layer.1.EncDecAttention.q.weight", &[Q, Embd], ByRows)
        .stands_for("cross_attn_q.weight"),
    Tensor::new("dec.cross_attn_k.weight", "decoder.layer.1.EncDecAttention.k.weight", &[Keys, Embd], ByRows)
        .stands_for("cross_attn_k.weight"),
    Tensor::new("dec.cross_attn_v.weight", "decoder.layer.1.EncDecAttention.v.weight", &[Values, Embd], ByRows)
        .stands_for("cross_attn_v.weight"),
    Tensor::new("dec.cross_attn_o.weight", "decoder.layer.1.EncDecAttention.o.weight", &[Embd, Outputs], ByColumns)
        .stands_for("cross_attn_output.weight"),
];
/// Biases by distance of that attention, which some checkpoints have and nobody adds.
pub const T5_CROSS_BIASES: Group = &[Tensor::new(
    "dec.cross_attn_rel_b.weight",
    "decoder.layer.1.EncDecAttention.relative_attention_bias.weight",
    &[Buckets, Heads],
    ByRows,
)
.optional()];
/// Its feed-forward network.
pub const T5_DECODER_FFN: Group = t5_ffn!("dec", "decoder.layer.2");

/// Norms of the sum behind attention and of that behind the feed-forward network.
pub const NORMS_OF_SUMS: Group = &[
    unnamed("attn_output_norm.weight", &[Embd], Norm),
    unnamed("attn_output_norm.bias", &[Embd], Bias),
    unnamed("layer_output_norm.weight", &[Embd], Norm),
    unnamed("layer_output_norm.bias", &[Embd], Bias),
];
/// A norm of the first of these sums with the block's input added once more, which some models have.
pub const SECOND_NORM_OF_SUM: Group =
    &[unnamed("attn_norm_2.weight", &[Embd], Norm).optional(), unnamed("attn_norm_2.bias", &[Embd], Bias).optional()];
/// The norm before attention, which the first block may lack.
pub const ATTN_NORM_OPTIONAL: Group = &[unnamed("attn_norm.weight", &[Embd], Norm).optional()];

/// Up and down projection, with a gate of its own, with the gate in the up projection, or with none.
pub const ANY_FFN: Group = &[
    unnamed("ffn_gate.weight", &[Ff, Embd], ByRows).optional(),
    unnamed("ffn_up.weight", &[UpOrBoth, Embd], ByRows),
    PLAIN_FFN[1],
    unnamed("ffn_up.bias", &[UpOrBoth], Bias).optional(),
    unnamed("ffn_down.bias", &[Embd], Bias),
];
/// A router and experts without gates.
pub const PLAIN_EXPERTS: Group = &[expert_parts::EXPERTS[0], expert_parts::EXPERTS[2], expert_parts::EXPERTS[3]];

/// The head of a ranking model, of one layer or two.
pub const RANK_HEAD: Group = &[
    unnamed("cls.weight", &[Embd, Embd], ByRows).optional(),
    unnamed("cls.bias", &[Embd], Bias).optional(),
    CLASSES,
    unnamed("cls.output.bias", &[Classes], Bias).optional(),
];
const CLASSES: Tensor = unnamed("cls.output.weight", &[Classes, Embd], ByRows).optional();
/// The same with a norm between the layers.
pub const NORMED_RANK_HEAD: Group = &[
    RANK_HEAD[0],
    unnamed("cls.norm.weight", &[Embd], Norm).optional(),
    CLASSES,
    unnamed("cls.output.bias", &[Classes], Bias).optional(),
];
/// A head of one layer without a bias.
pub const BARE_RANK_HEAD: Group = &[CLASSES];
/// A head of one layer with one output: Jina's.
pub const ONE_RANK_HEAD: Group =
    &[unnamed("cls.weight", &[One, Embd], ByRows).optional(), unnamed("cls.bias", &[One], Bias).optional()];

/// Projections behind the pooling, which some files have.
pub const PROJECTIONS: Group = &[
    unnamed("dense_2.weight", &[Projected, Embd], ByRows).optional(),
    unnamed("dense_3.weight", &[Embd, Projected], ByColumns).optional(),
];
