//! Attention's sums in tiles, for many rows at once: see `arch::x86_64::exact`, which says why they have the bits of
//! sums in order. What they cannot tell is left to the caller, who adds in order.

use crate::Isa;
use crate::arch::x86_64::exact::{outputs, rows};

/// Cells of a chunk of [`Outputs`], at most.
pub const CELLS: usize = outputs::CELLS;

/// Rows from which on tiles are faster: scores of 32 rows take as long in order, outputs of 16 do.
pub const FROM: usize = 32;

/// True if there are tiles for keys of `key` elements and values of `value` elements.
pub fn fits(isa: Isa, key: usize, value: usize) -> bool {
    rows::fits(isa, key, value)
}

/// Rows of queries.
pub type Queries = rows::Queries;
/// Sums of the values of some rows.
pub type Outputs = rows::Outputs;
