//! How large an any-precision file is: in all, up to each width, and what a run at each width reads.

use trine_formats::anyprec::Header;

use super::places::{Places, matrices};
use crate::quant::plan::Plan;
use crate::quant::row::Row;

/// Sizes at one width.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WidthSize {
    /// The width.
    pub bits: u8,
    /// Bytes of the file up to and with this width: a download of these bytes runs at it.
    pub prefix_bytes: u64,
    /// Bytes of the matrices that a run at this width reads: planes, tables of this width, sparse weights.
    pub run_bytes: u64,
    /// Bits per weight of the matrices that a run at this width reads.
    pub run_bits: f64,
    /// Bits per weight of the matrices in the prefix, the tables of narrower widths included.
    pub stored_bits: f64,
    /// Bytes of the tables of this width.
    pub table_bytes: u64,
}

/// Sizes of a whole file.
#[derive(Clone, PartialEq, Debug)]
pub struct Footprint {
    /// Weights in any-precision matrices.
    pub weights: u64,
    /// Their rows.
    pub rows: u64,
    /// Bytes of the tensors that are copied or encoded in a type of their own.
    pub copied_bytes: u64,
    /// Bytes of weights that are kept as they are, with their places.
    pub sparse_bytes: u64,
    /// The widths, ascending.
    pub widths: Vec<WidthSize>,
    /// Bytes of the file.
    pub file_bytes: u64,
}

impl Footprint {
    /// Sizes of a plan laid out with `sparse` weights kept as they are.
    pub(super) fn new(plan: &Plan, header: &Header, places: &Places, sparse: &[u64]) -> Footprint {
        let rows_of = |r: &Row| r.weights() / r.columns().max(1);
        let weights: u64 = matrices(plan).map(Row::weights).sum();
        let rows: u64 = matrices(plan).map(rows_of).sum();
        let plane = |r: &Row| r.columns().div_ceil(64) * 8 * rows_of(r);
        let plane_bytes: u64 = matrices(plan).map(plane).sum();
        let quantized: u64 = matrices(plan).map(|r| r.bytes).sum();
        let shared: u64 = matrices(plan).map(|r| header.shared_by(rows_of(r))).sum();
        let tables = |bits: u8| match header.tables {
            0 => (rows * u64::from(header.groups)) << (bits + 1),
            _ => (shared << (bits + 1)) + 2 * rows,
        };
        // Which table each row takes.
        let classes = if header.tables > 0 { rows } else { 0 };
        let sparse_bytes =
            matrices(plan).zip(sparse).filter(|&(_, &n)| n > 0).map(|(r, n)| 6 * n + 4 * (rows_of(r) + 1)).sum();
        let per_weight = |bytes: u64| bytes as f64 * 8.0 / weights.max(1) as f64;
        let mut stored = sparse_bytes + classes;
        let mut from = 0;
        let widths = places.prefixes.iter().map(|&(bits, prefix_bytes)| {
            stored += u64::from(bits - from) * plane_bytes + tables(bits);
            from = bits;
            let run_bytes = u64::from(bits) * plane_bytes + tables(bits) + sparse_bytes + classes;
            WidthSize {
                bits,
                prefix_bytes,
                run_bytes,
                run_bits: per_weight(run_bytes),
                stored_bits: per_weight(stored),
                table_bytes: tables(bits),
            }
        });
        Footprint {
            widths: widths.collect(),
            weights,
            rows,
            copied_bytes: plan.bytes() - quantized,
            sparse_bytes,
            file_bytes: places.layout.file_bytes(),
        }
    }
}
