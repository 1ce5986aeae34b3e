//! Rounding rows: the columns of a block feed their errors back at once, the columns behind it get those of the whole
//! block in one product.

use super::factor::Factor;
use super::prune::OF;
use super::strip::Strip;
use crate::kernels::Isa;
use crate::linalg::{BLOCK, COLUMNS, ROWS, tile_f64};

/// Rounds the rows of a strip: `weights` are theirs, with the columns of each in the order of the factor, and become
/// what the file holds.
///
/// A weight is changed by one column of its own block after the other, and by each earlier block at once: by the sum
/// over its columns in ascending order. Blocks have 128 columns.
///
/// # Panics
/// When the weights are no whole rows.
pub fn round_rows(isa: Isa, factor: &Factor, strip: &mut Strip<'_>, weights: &mut [f64]) {
    let columns = factor.columns();
    assert!(columns > 0 && columns.is_multiple_of(COLUMNS), "whole panels");
    let count = weights.len() / columns;
    assert_eq!(weights.len(), count * columns, "whole rows");
    let mut triangle = Vec::new();
    let mut errors = Vec::new();
    for first in (0..columns).step_by(BLOCK) {
        let last = (first + BLOCK).min(columns);
        let width = last - first;
        factor.copy_triangle(first, last, &mut triangle);
        errors.clear();
        errors.resize(count.next_multiple_of(ROWS) * width, 0.0);
        for (r, row) in weights.chunks_exact_mut(columns).enumerate() {
            let line = &mut errors[r / ROWS * ROWS * width..];
            let mut keep = |i: usize, error| line[i * ROWS + r % ROWS] = error;
            let order = &factor.order()[first..last];
            round_block(strip, r, order, &mut row[first..last], &triangle, &mut keep);
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

/// Rounds a block of row number `row`, whose columns are `order`, and keeps the error of every column.
fn round_block(
    strip: &mut Strip<'_>,
    row: usize,
    order: &[usize],
    block: &mut [f64],
    triangle: &[f64],
    keep: &mut dyn FnMut(usize, f64),
) {
    let width = block.len();
    let span = strip.span();
    for (i, &column) in order.iter().enumerate() {
        if strip.is_sparse() && i.is_multiple_of(OF) {
            let pivots = std::array::from_fn(|j| triangle[(i + j) * (width + 1)]);
            strip.prune(std::array::from_fn(|j| block[i + j]), pivots);
        }
        if let Some(span) = span.filter(|span| i.is_multiple_of(*span)) {
            strip.reach(row, column, &block[i..width.min(i + span)]);
        }
        let upper = &triangle[i * width..][i..width];
        let rounded = strip.round(row, column, block[i]);
        let error = (block[i] - rounded) / upper[0];
        keep(i, error);
        block[i] = rounded;
        for (w, u) in block[i + 1..].iter_mut().zip(&upper[1..]) {
            *w -= error * u;
        }
    }
}
