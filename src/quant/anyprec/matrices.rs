//! Which tensors get codebooks.

use crate::arch::{DENSE_MATRICES, Tensor as Described};

/// The method that makes codebooks.
pub(super) const NAME: &str = "anyprec";

/// The matrices of a block that get codebooks.
pub(super) fn block_matrices() -> impl Iterator<Item = &'static Described> {
    DENSE_MATRICES.into_iter().flatten()
}

/// True if a tensor is one of a block's matrices, `blk.N.attn_q.weight` to `blk.N.ffn_down.weight`.
pub fn is_block_matrix(name: &str, shape: &[u64]) -> bool {
    let matrix = || {
        let (number, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let counts = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        Some(counts && block_matrices().any(|t| t.gguf == rest))
    };
    shape.len() <= 2 && !shape.contains(&0) && matrix().unwrap_or(false)
}
