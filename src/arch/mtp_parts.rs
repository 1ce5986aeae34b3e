//! Tensors of heads for multi-token prediction: blocks behind those that are run, each of which predicts a further token.

use super::parts::Group;
use super::tensor::Extent::{Embd, TwiceEmbd, Vocab};
use super::tensor::Role::{ByRows, Embedding, Norm, Output};
use super::tensor::Tensor;

/// A tensor that no checkpoint is converted to.
const fn tensor(gguf: &'static str, shape: &'static [super::Extent], role: super::Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

/// The same, whose last norm may have another name.
pub const MTP_OR_OUT_NORM: Group = &[
    MTP[0],
    MTP[1],
    MTP[2],
    MTP[3],
    MTP[4],
    MTP[5],
    tensor("layer_output_norm.weight", &[Embd], Norm).optional().stands_for("nextn.shared_head_norm.weight"),
];

/// The same, whose block has a norm between attention and the feed-forward network, and whose ends but for the last norm are
/// the model's.
pub const MTP_OF_SINGLES: Group = &[
    MTP[0],
    MTP[1],
    MTP[2],
    tensor("nextn.shared_head_norm.weight", &[Embd], Norm),
    tensor("post_attention_norm.weight", &[Embd], Norm).stands_for("ffn_norm.weight"),
];

/// The tensors that a head has beside those of a block: norms of the token's embedding and of the hidden state before
/// it, the projection of both to a row of the residual stream, and the ends, where they are not those of the model.
pub const MTP: Group = &[
    tensor("nextn.eh_proj.weight", &[Embd, TwiceEmbd], ByRows),
    tensor("nextn.enorm.weight", &[Embd], Norm),
    tensor("nextn.hnorm.weight", &[Embd], Norm),
    tensor("nextn.embed_tokens.weight", &[Vocab, Embd], Embedding).optional(),
    tensor("nextn.shared_head_head.weight", &[Vocab, Embd], Output).optional(),
    tensor("nextn.shared_head_norm.weight", &[Embd], Norm).optional(),
];
