//! Attention's sums in tiles, for many rows at once: see `arch::x86_64::exact`, which says why they have the bits of
//! sums in order. What they cannot tell is left to the caller, who adds in order.

use super::LANES;
use crate::arch::x86_64::exact::{outputs, rows};
use crate::{Isa, Level};

/// Cells of a chunk of [`Outputs`], at most.
pub const CELLS: usize = outputs::CELLS;
/// Rows from which on tiles are faster: scores of 32 rows take as long in order, outputs of 16 do.
pub const FROM: usize = 32;
/// Most elements of a key or value: sums of products of bytes stay below 2^27.
const ELEMENTS: usize = 1024;

/// True if there are tiles for heads of so many elements.
pub fn fits(isa: Isa, key: usize, value: usize) -> bool {
    let size = |n: usize, unit: usize| (unit..=ELEMENTS).contains(&n) && n.is_multiple_of(unit);
    isa.has(Level::Amx) && size(key, 16) && size(value, LANES)
}

/// Rows of queries.
pub type Queries = rows::Queries;
/// Sums of the values of some rows.
pub type Outputs = rows::Outputs;
