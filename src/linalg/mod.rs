//! Dense symmetric matrices in `f64`: sums of `x x^T`, Cholesky factors and inverses of triangles.
//!
//! Every element is a chain whose order depends on the size of the matrix alone: neither the number of threads nor the
//! instruction set changes a bit. Sums over more than [`BLOCK`] terms are made block by block, each block in ascending
//! order from 0, with every product rounded before it is added; the blocks are then added or subtracted in ascending
//! order. Lanes are columns of the result, threads own whole rows or whole panels of it.
//!
//! A *panel* is 16 neighbouring columns with its rows one after the other, which is how the tiles of
//! [`gemm`](crate::kernels::gemm) take their right-hand side. A *line* is 4 neighbouring rows with its columns one
//! after the other, the left-hand side.

mod cholesky;
mod gram;
mod inverse;
mod pack;

pub use crate::kernels::gemm::{COLUMNS, ROWS, tile_f64};
pub use cholesky::cholesky;
pub use gram::{add_gram, triangle};
pub use inverse::invert_lower;
pub use pack::{pack_lines, panel_count};

/// Terms that are summed on their own before they reach an element.
pub const BLOCK: usize = 128;

#[cfg(test)]
mod tests;
