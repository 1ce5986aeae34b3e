//! Groups of tensors of latent attention.

use super::parts::Group;
use super::tensor::Extent::{
    Embd, Heads, KvRank, KvRankAndRope, LatentKeysAndValues, LatentQueries, LatentRope, LatentStill, LatentValue,
    LatentValues, QueryRank,
};
use super::tensor::Role::{ByColumns, ByRows, Norm};
use super::tensor::{Extent, Role, Tensor};

const fn tensor(gguf: &'static str, shape: &'static [Extent], role: Role) -> Tensor {
    Tensor::new(gguf, "", shape, role)
}

/// Queries of the block's input.
pub const QUERIES: Group = &[tensor("attn_q.weight", &[LatentQueries, Embd], ByRows)];
/// Queries of a narrow vector: its projection, its norm, and the projection to all heads.
pub const RANKED_QUERIES: Group = &[
    tensor("attn_q_a.weight", &[QueryRank, Embd], ByRows),
    tensor("attn_q_a_norm.weight", &[QueryRank], Norm),
    tensor("attn_q_b.weight", &[LatentQueries, QueryRank], ByRows),
];
/// The same, which some models have instead of queries of the block's input.
pub const RANKED_QUERIES_OPTIONAL: Group =
    &[RANKED_QUERIES[0].optional(), RANKED_QUERIES[1].optional(), RANKED_QUERIES[2].optional()];
/// The vector that keys and values of all heads are made of, with the elements of the keys that RoPE turns, and its
/// norm.
pub const LATENT: Group =
    &[tensor("attn_kv_a_mqa.weight", &[KvRankAndRope, Embd], ByRows), tensor("attn_kv_a_norm.weight", &[KvRank], Norm)];
/// The matrix that expands that vector to keys and values.
pub const EXPANSION: Group = &[tensor("attn_kv_b.weight", &[LatentKeysAndValues, KvRank], ByRows)];
/// The same in two tensors with a matrix for each head, the first of them transposed: it can be multiplied with the
/// queries instead of the keys.
pub const EXPANSION_BY_HEAD: Group = &[
    tensor("attn_k_b.weight", &[Heads, KvRank, LatentStill], ByRows),
    tensor("attn_v_b.weight", &[Heads, LatentValue, KvRank], ByRows),
];
/// Either of the two.
pub const EXPANSION_EITHER: Group =
    &[EXPANSION[0].optional(), EXPANSION_BY_HEAD[0].optional(), EXPANSION_BY_HEAD[1].optional()];
/// The norm of the elements of a key that RoPE turns, before it turns them.
pub const TURNED_KEY_NORM: Group = &[tensor("attn_k_norm.weight", &[LatentRope], Norm)];
/// Gates on every element of the heads' outputs.
pub const LATENT_GATE: Group = &[tensor("attn_gate.weight", &[LatentValues, Embd], ByRows)];
/// The same, which some models have.
pub const LATENT_GATE_OPTIONAL: Group = &[LATENT_GATE[0].optional()];
/// The output projection.
pub const LATENT_OUT: Group = &[tensor("attn_output.weight", &[Embd, LatentValues], ByColumns)];
