//! The inverse of a triangle.

use rayon::prelude::*;

use super::{BLOCK, pack_lines, panel_count};
use crate::kernels::Isa;
use crate::kernels::gemm::{COLUMNS, ROWS, tile_f64};

/// The inverse of the lower triangle `l`, `[n][n]`, whose diagonal has no zero; in panels of 16 columns, each of `n`
/// rows, with zeros above the diagonal. In parallel.
///
/// # Panics
/// When `l` does not have `n` rows of `n` elements.
pub fn invert_lower(isa: Isa, n: usize, l: &[f64]) -> Vec<f64> {
    assert_eq!(l.len(), n * n, "a square");
    let mut inverse = vec![0.0; panel_count(n) * n * COLUMNS];
    for first in (0..n).step_by(BLOCK) {
        let last = (first + BLOCK).min(n);
        let height = last - first;
        let own = invert_small(height, |i, j| l[(first + i) * n + first + j]);
        let block = Block {
            first,
            height,
            left: (0..first)
                .into_par_iter()
                .step_by(BLOCK)
                .map(|column| pack_lines(height, BLOCK, |i, k| l[(first + i) * n + column + k]))
                .collect(),
            own: pack_lines(height, height, |i, k| own[i * height + k]),
        };
        inverse.par_chunks_mut((n * COLUMNS).max(1)).enumerate().take(panel_count(last)).for_each(|(p, panel)| {
            let column = p * COLUMNS;
            if column < first {
                block.invert(isa, panel, column);
                return;
            }
            let columns = column - first..(column + COLUMNS).min(last) - first;
            let rows = panel[first * COLUMNS..].chunks_exact_mut(COLUMNS);
            for (to, own) in rows.zip(own.chunks_exact(height)) {
                to[..columns.len()].copy_from_slice(&own[columns.clone()]);
            }
        });
    }
    inverse
}

/// A block of rows: what lies left of the diagonal, in blocks of columns, and the inverse of the part on the diagonal,
/// all as lines.
struct Block {
    first: usize,
    height: usize,
    left: Vec<Vec<f64>>,
    own: Vec<f64>,
}

impl Block {
    /// The rows of a panel whose columns start at `column`: the inverse of the part on the diagonal times what lies
    /// left of it times the rows above, negated.
    fn invert(&self, isa: Isa, panel: &mut [f64], column: usize) {
        let (above, rows) = panel.split_at_mut(self.first * COLUMNS);
        let mut products = vec![0.0; self.height.next_multiple_of(ROWS) * COLUMNS];
        // The inverse is zero above its diagonal.
        let blocks = above.chunks_exact(BLOCK * COLUMNS).zip(&self.left);
        for (panel, lines) in blocks.skip(column / BLOCK) {
            let groups = lines.chunks_exact(BLOCK * ROWS);
            for (line, sums) in groups.zip(products.chunks_exact_mut(ROWS * COLUMNS)) {
                let tile = tile_f64(isa, line, panel);
                for (sum, product) in sums.iter_mut().zip(tile.as_flattened()) {
                    *sum += product;
                }
            }
        }
        let groups = self.own.chunks_exact(self.height * ROWS);
        let rows = rows[..self.height * COLUMNS].chunks_mut(ROWS * COLUMNS);
        for (line, rows) in groups.zip(rows) {
            let tile = tile_f64(isa, line, &products[..self.height * COLUMNS]);
            for (to, product) in rows.iter_mut().zip(tile.as_flattened()) {
                *to = -product;
            }
        }
    }
}

/// The inverse of a small lower triangle of `n` rows, `[n][n]`, given by `element(row, column)`.
pub(super) fn invert_small(n: usize, element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut inverse = vec![0.0; n * n];
    for i in 0..n {
        let diagonal = element(i, i);
        let (above, row) = inverse.split_at_mut(i * n);
        for j in 0..i {
            let sum = (j..i).fold(0.0, |s, k| s + element(i, k) * above[k * n + j]);
            row[j] = -sum / diagonal;
        }
        row[i] = 1.0 / diagonal;
    }
    inverse
}
