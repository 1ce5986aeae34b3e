//! Sparse weights, which are stored as they are, and their terms of the products.

use trine_formats::anyprec::{ApView, SparseView};
use trine_formats::types::num::f16_to_f32;

use crate::Isa;
use crate::proof::compiled_for_avx2;

/// `weight − centroid` of every sparse weight of `view`, in order.
pub fn deltas(view: &ApView, sparse: &SparseView) -> Vec<f32> {
    let group = view.columns / view.groups;
    let mut ptr = sparse.ptr().map(|p| p as usize);
    let mut start = ptr.next().unwrap_or(0);
    let mut out = Vec::with_capacity(sparse.col().len());
    for (row, end) in ptr.enumerate() {
        let planes = view.row_planes(row);
        let tables = &view.lut[row * view.lut_bytes()..];
        for (column, weight) in sparse.entries(start..end) {
            let bit = |code: usize, plane: &&[u8]| code << 1 | usize::from(plane[column / 8] >> (column % 8) & 1);
            let code = planes.iter().fold(0, bit);
            let entry = (column / group) << view.width | code;
            let centroid = u16::from_le_bytes([tables[2 * entry], tables[2 * entry + 1]]);
            out.push(weight - f16_to_f32(centroid));
        }
        start = end;
    }
    out
}

/// Entries of one row.
pub struct Entries<'a> {
    /// Columns, each 4 bytes, little-endian.
    pub columns: &'a [u8],
    /// `weight - centroid` of each entry ([`deltas`]).
    pub deltas: &'a [f32],
}

/// Tokens whose chains run side by side.
const CHAINS: usize = 8;

/// `out[t] = fma(delta, x[t][column], out[t])` for each entry in order; `x` is `[tokens][width]`.
pub fn add(isa: Isa, entries: &Entries<'_>, x: &[f32], width: usize, out: &mut [f32]) {
    if entries.deltas.is_empty() {
        return;
    }
    compiled_for_avx2!(
        fma,
        isa,
        add_with(entries: &Entries<'_>, x: &[f32], width: usize, out: &mut [f32]),
        add_with
    );
}

/// To be compiled for the instruction set of its caller.
#[inline(always)]
fn add_with(entries: &Entries<'_>, x: &[f32], width: usize, out: &mut [f32]) {
    let (columns, _) = entries.columns.as_chunks();
    let entries = columns.iter().zip(entries.deltas);
    let entries = entries.map(|(&c, &delta)| (i32::from_le_bytes(c) as usize, delta));
    for (out, x) in out.chunks_mut(CHAINS).zip(x.chunks(CHAINS * width)) {
        if let [out] = out {
            *out = entries.clone().fold(*out, |y, (column, delta)| delta.mul_add(x[column], y));
            continue;
        }
        for (column, delta) in entries.clone() {
            for (t, out) in out.iter_mut().enumerate() {
                *out = delta.mul_add(x[t * width + column], *out);
            }
        }
    }
}
