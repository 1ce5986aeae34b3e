//! Cells of the tables of tensors.

use trine::quant::Row;

use crate::progress::human_bytes;
use crate::shown;
use crate::table::Cell;

/// The cell of a tensor's name, which tells rows apart.
pub fn name(row: &Row) -> Cell {
    Cell::left("tensor", 36, shown::name(&row.name)).key().cut_to(24)
}

/// The cell of a tensor's shape.
pub fn shape(row: &Row) -> Cell {
    let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
    Cell::right("shape", 13, shape.join(" x "))
}

/// Cells of one tensor of the usual targets: name, shape, types, size, and why.
pub fn usual(row: &Row) -> Vec<Cell> {
    let (from, to) = (row.from.to_string(), row.to.to_string());
    let types = if row.converts() { format!("{from} -> {to}") } else { from };
    vec![
        name(row),
        shape(row),
        Cell::left("type", 14, types),
        Cell::right("before", 8, human_bytes(row.bytes_from)).wide_only(),
        Cell::right("size", 8, human_bytes(row.bytes)),
        Cell::left("why", 12, row.reason.to_string()).cut_to(12),
    ]
}
