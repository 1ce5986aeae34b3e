//! Choosing codes column by column, each width with its own errors.

use super::choice::Choice;
use super::weighed::Feedback;
use crate::linalg::{BLOCK, COLUMNS, ROWS, panel_count, tile_f64};

impl Feedback<'_> {
    /// Chooses the codes of rows whose weights are `weights`, in the order of the factor; `tables` has those of each
    /// row.
    ///
    /// A width's weight is changed by one column of its own block after the other, and by each earlier block at once:
    /// by the sum over its columns in ascending order. Blocks have 128 columns.
    pub(super) fn pass(&self, tables: &[Vec<Vec<f64>>], weights: &[f64], codes: &mut [u8]) {
        let factor = &self.metric.factor;
        let (columns, widths) = (factor.columns(), self.shares.len());
        // What is left of each weight, row after row with all of its widths.
        let rows = weights.chunks_exact(columns);
        let mut left: Vec<f64> = rows.flat_map(|row| (0..widths).flat_map(move |_| row.iter().copied())).collect();
        let lines = tables.len() * widths;
        let (mut triangle, mut errors) = (Vec::new(), Vec::new());
        let mut choice = Choice::default();
        for first in (0..columns).step_by(BLOCK) {
            let last = (first + BLOCK).min(columns);
            let width = last - first;
            factor.copy_triangle(first, last, &mut triangle);
            errors.clear();
            errors.resize(lines.next_multiple_of(ROWS) * width, 0.0);
            for (row, tables) in tables.iter().enumerate() {
                let own = &mut left[row * widths * columns..][..widths * columns];
                let codes = &mut codes[row * columns..][first..last];
                for (i, code) in codes.iter_mut().enumerate() {
                    let at = first + i;
                    let wanted = |b: usize| own[b * columns + at];
                    *code = choice.code(&self.shares, tables, wanted);
                    let upper = &triangle[i * width..][i..width];
                    for (b, table) in tables.iter().enumerate() {
                        let shift = widths - 1 - b;
                        let block = &mut own[b * columns..][at..last];
                        let error = (block[0] - table[usize::from(*code >> shift)]) / upper[0];
                        let line = row * widths + b;
                        errors[line / ROWS * ROWS * width + i * ROWS + line % ROWS] = error;
                        for (w, u) in block[1..].iter_mut().zip(&upper[1..]) {
                            *w -= error * u;
                        }
                    }
                }
            }
            for p in last / COLUMNS..panel_count(columns) {
                let panel = factor.panel(p, first..last);
                let start = p * COLUMNS;
                let end = (start + COLUMNS).min(columns);
                let groups = left.chunks_mut(ROWS * columns);
                for (rows, line) in groups.zip(errors.chunks_exact(ROWS * width)) {
                    let tile = tile_f64(self.isa, line, panel);
                    for (row, changes) in rows.chunks_exact_mut(columns).zip(&tile) {
                        for (w, change) in row[start..end].iter_mut().zip(changes) {
                            *w -= change;
                        }
                    }
                }
            }
        }
    }
}
