//! Rounding rows: the columns of a block feed their errors back at once, the columns behind it get those of the whole block
//! in one product.

use super::factor::Factor;
use super::rounding::Rounding;
use crate::kernels::Isa;
use crate::linalg::{BLOCK, COLUMNS, ROWS, tile_f64};

/// Rounds rows of `factor.columns()` weights, which become what the file holds, and writes their blocks to `out`.
///
/// A weight is changed by one column of its own block after the other, and by each earlier block at once: by the sum over its
/// columns in ascending order. Blocks have 128 columns, or as many as a span where that is more.
///
/// # Panics
/// When the rows or their bytes are not of one size.
pub fn round_rows(
    isa: Isa,
    factor: &Factor,
    rounding: &mut dyn Rounding,
    weights: &mut [f64],
    out: &mut [u8],
) {
    let columns = factor.columns();
    assert!(
        columns > 0 && columns.is_multiple_of(COLUMNS),
        "whole panels"
    );
    let count = weights.len() / columns;
    assert_eq!(weights.len(), count * columns, "whole rows");
    let row_bytes = out.len() / count.max(1);
    assert_eq!(out.len(), count * row_bytes, "as many bytes for every row");
    let step = BLOCK.max(rounding.span());
    let mut triangle = Vec::new();
    let mut errors = Vec::new();
    for first in (0..columns).step_by(step) {
        let last = (first + step).min(columns);
        let width = last - first;
        copy_triangle(factor, first, last, &mut triangle);
        errors.clear();
        errors.resize(count.next_multiple_of(ROWS) * width, 0.0);
        let rows = weights.chunks_exact_mut(columns);
        for (r, (row, out)) in rows.zip(out.chunks_exact_mut(row_bytes)).enumerate() {
            let line = &mut errors[r / ROWS * ROWS * width..];
            let mut keep = |i: usize, error| line[i * ROWS + r % ROWS] = error;
            let bytes = row_bytes * first / columns..row_bytes * last / columns;
            let block = &mut row[first..last];
            round_block(
                rounding,
                first,
                block,
                &triangle,
                &mut keep,
                &mut out[bytes],
            );
        }
        for p in last / COLUMNS..columns / COLUMNS {
            let panel = factor.panel(p, first..last);
            let groups = weights.chunks_mut(ROWS * columns);
            for (rows, line) in groups.zip(errors.chunks_exact(ROWS * width)) {
                let tile = tile_f64(isa, line, panel);
                for (row, changes) in rows.chunks_exact_mut(columns).zip(&tile) {
                    let row = &mut row[p * COLUMNS..][..COLUMNS];
                    for (w, change) in row.iter_mut().zip(changes) {
                        *w -= change;
                    }
                }
            }
        }
    }
}

/// The part of `U` on the diagonal, row after row.
fn copy_triangle(factor: &Factor, first: usize, last: usize, triangle: &mut Vec<f64>) {
    triangle.clear();
    for i in first..last {
        triangle.extend((first..last).map(|j| factor.upper(i, j)));
    }
}

/// Rounds one row of a block that starts at column `first`, and keeps the error of every column.
fn round_block(
    rounding: &mut dyn Rounding,
    first: usize,
    block: &mut [f64],
    triangle: &[f64],
    keep: &mut dyn FnMut(usize, f64),
    out: &mut [u8],
) {
    let (width, span) = (block.len(), rounding.span());
    for start in (0..width).step_by(span) {
        let end = (start + span).min(width);
        rounding.begin(first + start, &block[start..end]);
        for i in start..end {
            let upper = &triangle[i * width..][i..width];
            let rounded = rounding.round(i - start, block[i]);
            let error = (block[i] - rounded) / upper[0];
            keep(i, error);
            block[i] = rounded;
            for (w, u) in block[i + 1..].iter_mut().zip(&upper[1..]) {
                *w -= error * u;
            }
        }
        let bytes = out.len() * start / width..out.len() * end / width;
        rounding.finish(&mut out[bytes]);
    }
}
