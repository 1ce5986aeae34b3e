//! The Cholesky factor.

use rayon::prelude::*;

use super::inverse::invert_small;
use super::{BLOCK, pack_lines, panel_count};
use crate::kernels::Isa;
use crate::kernels::gemm::{COLUMNS, ROWS, tile_f64};

/// Rows of the result that a task owns.
const TASK: usize = 4 * ROWS;

/// Turns the lower triangle of a symmetric matrix `a`, `[n][n]`, into `L` with `a = L L^T`, in parallel. What is above
/// the diagonal is neither read nor defined afterwards.
///
/// Blocks of [`BLOCK`] columns are done one after the other: the part on the diagonal element by element, the rows
/// below it times the inverse of that part, and then what the block adds to the rest is subtracted from it.
///
/// # Errors
/// The first column where the matrix is not positive definite; `a` is unfinished then.
///
/// # Panics
/// When `a` does not have `n` rows of `n` elements.
pub fn cholesky(isa: Isa, n: usize, a: &mut [f64]) -> Result<(), usize> {
    assert_eq!(a.len(), n * n, "a square");
    for first in (0..n).step_by(BLOCK) {
        let last = (first + BLOCK).min(n);
        let width = last - first;
        factor_small(n, first..last, a)?;
        let (above, below) = a.split_at_mut(last * n);
        let root = |i: usize, j: usize| above[(first + i) * n + first + j];
        let inverse = invert_small(width, root);
        let inverse = panels(width, width, |k, j| if k <= j { inverse[j * width + k] } else { 0.0 });
        below.par_chunks_mut(TASK * n).for_each(|rows| {
            let count = rows.len() / n;
            let lines = pack_lines(count, width, |i, k| rows[i * n + first + k]);
            for (p, panel) in inverse.chunks_exact(width * COLUMNS).enumerate() {
                let columns = COLUMNS.min(width - p * COLUMNS);
                for (group, line) in lines.chunks_exact(width * ROWS).enumerate() {
                    let tile = tile_f64(isa, line, panel);
                    let rows = rows.chunks_exact_mut(n).skip(group * ROWS);
                    for (row, products) in rows.zip(&tile) {
                        row[first + p * COLUMNS..][..columns].copy_from_slice(&products[..columns]);
                    }
                }
            }
        });
        let height = n - last;
        let packed = panels(width, height, |k, j| below[j * n + first + k]);
        below.par_chunks_mut(TASK * n).enumerate().for_each(|(task, rows)| {
            subtract(isa, rows, (n, first, last), task * TASK, &packed);
        });
    }
    Ok(())
}

/// Subtracts the products of the columns `first..last` from what lies right of them in some rows, the first of which is
/// number `row` below the block.
fn subtract(isa: Isa, rows: &mut [f64], (n, first, last): (usize, usize, usize), row: usize, panels: &[f64]) {
    let (width, count) = (last - first, rows.len() / n);
    let lines = pack_lines(count, width, |i, k| rows[i * n + first + k]);
    for (p, panel) in panels.chunks_exact(width * COLUMNS).enumerate() {
        let column = p * COLUMNS;
        if column >= row + count {
            break;
        }
        for (group, line) in lines.chunks_exact(width * ROWS).enumerate() {
            let tile = tile_f64(isa, line, panel);
            for (i, products) in tile.iter().enumerate() {
                let i = group * ROWS + i;
                if i >= count || row + i < column {
                    continue;
                }
                let columns = COLUMNS.min(row + i + 1 - column);
                let to = &mut rows[i * n + last + column..][..columns];
                for (to, product) in to.iter_mut().zip(products) {
                    *to -= product;
                }
            }
        }
    }
}

/// A matrix of `height` rows, given by `element(row, column)`, as panels; zeros fill up the last.
fn panels(height: usize, columns: usize, element: impl Fn(usize, usize) -> f64 + Sync) -> Vec<f64> {
    let mut panels = vec![0.0; panel_count(columns) * height * COLUMNS];
    panels.par_chunks_mut((height * COLUMNS).max(1)).enumerate().for_each(|(p, panel)| {
        let width = COLUMNS.min(columns - p * COLUMNS);
        for (k, to) in panel.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
            for (j, to) in to[..width].iter_mut().enumerate() {
                *to = element(k, p * COLUMNS + j);
            }
        }
    });
    panels
}

/// The factor of a block on the diagonal, from which everything to its left has been subtracted.
fn factor_small(n: usize, block: std::ops::Range<usize>, a: &mut [f64]) -> Result<(), usize> {
    for j in block.clone() {
        let (above, below) = a.split_at_mut((j + 1) * n);
        let row = &mut above[j * n..];
        let pivot = row[block.start..j].iter().fold(row[j], |d, l| d - l * l);
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err(j);
        }
        let root = pivot.sqrt();
        row[j] = root;
        for lower in below.chunks_exact_mut(n).take(block.end - j - 1) {
            let products = lower[block.start..j].iter().zip(&row[block.start..j]);
            let rest = products.fold(lower[j], |s, (a, b)| s - a * b);
            lower[j] = rest / root;
        }
    }
    Ok(())
}
