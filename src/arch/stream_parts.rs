//! Groups of tensors of residual streams that are read through gates, and of the n-grams that are added to them.

use super::parts::{Group, TOKENS};
use super::tensor::Extent::{Embd, NgramKernel, NgramRows, NgramSize, StreamRank, Streams, StreamsTimesEmbd};
use super::tensor::Role::{ByRows, Norm, Positions, Vector};
use super::tensor::{Extent, Role, Tensor};

const fn tensor(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

/// Norms of the streams, projections to the gates on them and from these, and to the coefficients with which outputs
/// are written, for both sublayers of a block.
pub const GATED_CONNECTIONS: Group = &[
    tensor("hc_attn_norm.weight", &[Streams, Embd], Norm).stands_for("attn_norm.weight"),
    tensor("hc_attn_down.weight", &[StreamRank, StreamsTimesEmbd], ByRows),
    tensor("hc_attn_up.weight", &[StreamsTimesEmbd, StreamRank], ByRows),
    tensor("hc_attn_inject.weight", &[Streams, StreamsTimesEmbd], ByRows),
    tensor("hc_ffn_norm.weight", &[Streams, Embd], Norm).stands_for("ffn_norm.weight"),
    tensor("hc_ffn_down.weight", &[StreamRank, StreamsTimesEmbd], ByRows),
    tensor("hc_ffn_up.weight", &[StreamsTimesEmbd, StreamRank], ByRows),
    tensor("hc_ffn_inject.weight", &[Streams, StreamsTimesEmbd], ByRows),
];
/// Token embeddings, the same for what reads the streams last, and the table of n-grams.
pub const GATED_ENDS: Group = &[
    TOKENS[0],
    tensor("output_hc_norm.weight", &[Streams, Embd], Norm).stands_for("output_norm.weight"),
    tensor("output_hc_down.weight", &[StreamRank, StreamsTimesEmbd], ByRows),
    tensor("output_hc_up.weight", &[StreamsTimesEmbd, StreamRank], ByRows),
    tensor("per_layer_token_embd.weight", &[NgramRows, NgramSize], Positions).optional(),
];
/// The use that a block makes of n-grams: keys and values, norms of these and of the streams, and the convolution.
pub const NGRAMS: Group = &[
    tensor("ple_key.weight", &[StreamsTimesEmbd, Embd], ByRows).optional(),
    tensor("ple_value.weight", &[Embd, Embd], ByRows).optional(),
    tensor("ple_norm_key.weight", &[Streams, Embd], Norm).optional(),
    tensor("ple_norm_query.weight", &[Streams, Embd], Norm).optional(),
    tensor("ple_norm_conv.weight", &[Streams, Embd], Norm).optional(),
    tensor("ple_conv1d.weight", &[StreamsTimesEmbd, NgramKernel], Vector).optional(),
];
