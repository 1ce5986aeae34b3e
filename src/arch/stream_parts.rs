//! Groups of tensors of residual streams that are read through gates or predicted, of the n-grams that are added to
//! them, and of the vectors that tokens have for every block.

use super::parts::{Group, TOKENS};
use super::tensor::Extent::{
    Embd, Fixed, LayerInput, LayerInputs, NgramKernel, NgramRows, NgramSize, OtherStreams, StreamPairs, StreamRank,
    Streams, StreamsTimesEmbd, Vocab,
};
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

/// From one stream to the others, and back.
pub const PREDICTED_ENDS: Group = &[
    tensor("altup_proj.weight", &[OtherStreams, Embd, Embd], ByRows),
    tensor("altup_unembd_proj.weight", &[OtherStreams, Embd, Embd], ByRows),
];
/// The prediction of all streams and its correction by the first one, both by a router's numbers.
pub const PREDICTIONS: Group = &[
    tensor("altup_router_norm.weight", &[Embd], Norm),
    tensor("altup_router.weight", &[Streams, Embd], ByRows),
    tensor("altup_predict_coef.weight", &[StreamPairs, Streams], ByRows),
    tensor("altup_correct_coef.weight", &[Streams, Streams], ByRows),
    tensor("altup_correct_scale.weight", &[Embd], Vector),
];
/// A path of low rank beside attention.
pub const LAUREL: Group = &[
    tensor("laurel_l.weight", &[Fixed(64), Embd], ByRows),
    tensor("laurel_r.weight", &[Embd, Fixed(64)], ByRows),
    tensor("laurel_post_norm.weight", &[Embd], Norm),
];
/// The vectors of tokens for all blocks: their table, the projection of the embeddings that is added, and its norm.
pub const LAYER_INPUTS: Group = &[
    tensor("per_layer_token_embd.weight", &[Vocab, LayerInputs], Positions),
    tensor("per_layer_model_proj.weight", &[LayerInputs, Embd], ByRows),
    tensor("per_layer_proj_norm.weight", &[LayerInput], Norm),
];
/// The gate on a block's vector, the projection from it, and the norm of what it gives.
pub const LAYER_INPUT: Group = &[
    tensor("inp_gate.weight", &[LayerInput, Embd], ByRows),
    tensor("proj.weight", &[Embd, LayerInput], ByRows),
    tensor("post_norm.weight", &[Embd], Norm),
];
