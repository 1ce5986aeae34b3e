//! Groups of tensors of attention to compressed keys.

use super::parts::Group;
use super::tensor::Extent::{Embd, Fixed, Head, Keys, OutputGroup, OutputGroups, OutputRank, OutputRanks, TwiceHead};
use super::tensor::Role::{ByColumns, ByRows, Norm, Positions};
use super::tensor::{Extent, Role, Tensor};

/// Positions of a block that overlaps with the next one.
pub const OVERLAPPING: u64 = 4;
/// Positions of a block that does not.
pub const APART: u64 = 128;

const fn tensor(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

/// The vector of a position that is its key and its value, and its norm.
pub const KEYS_AS_VALUES: Group =
    &[tensor("attn_kv.weight", &[Keys, Embd], ByRows), tensor("attn_kv_a_norm.weight", &[Head], Norm)];
/// The output projection in two steps: one for each group of heads, and one of all their outputs.
pub const GROUPED_OUT: Group = &[
    tensor("attn_output_a.weight", &[OutputGroups, OutputRank, OutputGroup], ByRows),
    tensor("attn_output_b.weight", &[Embd, OutputRanks], ByColumns).stands_for("attn_output.weight"),
];
/// The tensors that make a key for each block of positions: projections to values and scores, scores of the places in a
/// block, and the norm of the keys. Blocks of one kind overlap.
pub const COMPRESSORS: Group = &[
    tensor("attn_compressor_kv.weight", &[TwiceHead, Embd], ByRows).stands_for("overlapping_kv.weight").optional(),
    tensor("attn_compressor_gate.weight", &[TwiceHead, Embd], ByRows).stands_for("overlapping_gate.weight").optional(),
    tensor("attn_compressor_ape.weight", &[Fixed(OVERLAPPING), TwiceHead], Positions)
        .stands_for("overlapping_ape.weight")
        .optional(),
    tensor("attn_compressor_kv.weight", &[Head, Embd], ByRows).stands_for("apart_kv.weight").optional(),
    tensor("attn_compressor_gate.weight", &[Head, Embd], ByRows).stands_for("apart_gate.weight").optional(),
    tensor("attn_compressor_ape.weight", &[Fixed(APART), Head], Positions).stands_for("apart_ape.weight").optional(),
    tensor("attn_compressor_norm.weight", &[Head], Norm).optional(),
];
