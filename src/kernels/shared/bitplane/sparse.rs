//! Sparse weights, which are stored as they are, and their terms of the products.

use crate::Isa;
use crate::proof::compiled_for_avx2;

/// Entries of one row.
pub struct Entries<'a> {
    /// Columns, each 4 bytes, little-endian.
    pub columns: &'a [u8],
    /// `weight - centroid` of each entry ([`trine_formats::anyprec::ApView::sparse_differences`]).
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
