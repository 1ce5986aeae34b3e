//! Rounding rows: the columns of a block feed their errors back at once, the columns behind it get those of the whole
//! block in one product.

use trine_formats::types::TypeInfo;
use trine_formats::types::grid::Step;
use trine_formats::types::ik;

use super::descent::Descent;
use super::factor::Factor;
use crate::kernels::Isa;
use crate::linalg::{BLOCK, COLUMNS, ROWS, tile_f64};

/// Rows of one width that become one type, and how the columns of a block are rounded.
pub trait Strip {
    /// Adds a row of the tensor, whose blocks will be `blocks`.
    fn push(&mut self, weights: &[f32], blocks: &mut [u8]);

    /// Rounds the columns of a block of row number `row`, with their weights as earlier blocks have left them.
    fn round(&mut self, row: usize, block: &mut Block<'_>);

    /// Goes over row number `row` again, whose columns are all rounded; nothing where that is not done.
    fn descend(&mut self, row: usize, descent: &mut Descent<'_>) {
        let _ = (row, descent);
    }

    /// Completes the blocks of all rows, whose codes are chosen.
    fn write(&self, out: &mut [u8]);
}

/// Reads the steps of an encoded row, one for each `group` of weights; `of_block` reads those of a block, in units of the
/// scale before the row where there is one.
pub fn steps_of_row(
    info: &TypeInfo,
    row: &[u8],
    steps: &mut [Step],
    group: usize,
    of_block: impl Fn(&[u8], &mut [Step]),
) {
    let (head, blocks) = row.split_at(info.head);
    for (block, steps) in blocks.chunks_exact(info.bytes).zip(steps.chunks_exact_mut(info.block / group)) {
        of_block(block, steps);
    }
    if let Some(d) = ik::scale_of_row(head) {
        steps.iter_mut().for_each(|step| step.scale *= d);
    }
}

/// Columns of a row that feed their errors back at once.
pub struct Block<'a> {
    /// The columns, by their numbers in the tensor.
    pub order: &'a [usize],
    /// Their weights, those that are rounded as the file holds them.
    pub weights: &'a mut [f64],
    /// Their part of `U`, row after row.
    pub triangle: &'a [f64],
    /// The errors of the rows of a line, column after column.
    errors: &'a mut [f64],
    /// The row in its line.
    lane: usize,
}

impl Block<'_> {
    /// `U_jj` of the columns from `i` on.
    pub fn pivots<const N: usize>(&self, i: usize) -> [f64; N] {
        std::array::from_fn(|j| self.triangle[(i + j) * (self.order.len() + 1)])
    }

    /// The part of `U` of the columns from `i` on.
    pub fn upper<const N: usize>(&self, i: usize) -> [[f64; N]; N] {
        let element = |r: usize, c: usize| self.triangle[(i + r) * self.order.len() + i + c];
        std::array::from_fn(|r| std::array::from_fn(|c| element(r, c)))
    }

    /// Column `i` becomes `rounded`: the later ones make up for it.
    pub fn feed(&mut self, i: usize, rounded: f64) {
        let width = self.order.len();
        let upper = &self.triangle[i * width..][i..width];
        let error = (self.weights[i] - rounded) / upper[0];
        self.errors[i * ROWS + self.lane] = error;
        self.weights[i] = rounded;
        for (w, u) in self.weights[i + 1..].iter_mut().zip(&upper[1..]) {
            *w -= error * u;
        }
    }
}

/// Rounds the rows of a strip: `weights` are theirs, with the columns of each in the order of the factor, and become
/// what the file holds.
///
/// A weight is changed by one column of its own block after the other, and by each earlier block at once: by the sum
/// over its columns in ascending order. Blocks have 128 columns.
///
/// # Panics
/// When the weights are no whole rows.
pub fn round_rows(isa: Isa, factor: &Factor, strip: &mut dyn Strip, weights: &mut [f64]) {
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
            let (errors, lane) = (&mut errors[r / ROWS * ROWS * width..], r % ROWS);
            let (order, weights) = (&factor.order()[first..last], &mut row[first..last]);
            strip.round(r, &mut Block { order, weights, triangle: &triangle, errors, lane });
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
