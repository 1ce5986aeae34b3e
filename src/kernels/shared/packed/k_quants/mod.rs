//! K-quants, 16 rows interleaved: the bytes for all instruction sets.
//!
//! All but Q2_K have eight chains per row. The chain that the reference keeps for the elements that are l mod 8 is
//! walked by itself: part l of a block has their codes. Unit s = 0..8 of a part is the elements 32s + l + 8i, i = 0..4,
//! of which row r owns byte 4r + i.

use trine_formats::types::info;

pub(crate) mod of_16;
pub(crate) mod of_32;
pub(crate) mod q2_k;

/// Rows of a group.
pub(crate) const ROWS: usize = 16;
/// Weights of a block.
pub(crate) const BLOCK: usize = 256;
/// Chains of a row.
pub(crate) const CHAINS: usize = 8;
/// Bytes of a Q8_K block.
pub(crate) const Q8_K: usize = info::Q8_K.bytes;

/// Rows of blocks, and how many there are: `w` is up to 16 file rows of `n` weights.
pub(crate) fn count_rows(w: &[u8], row_bytes: usize) -> usize {
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= ROWS, "weights");
    rows
}
