//! Neighbouring rows that become points of a codebook: eight columns are rounded together.
//!
//! The scales are the encoder's at first, with the diagonal of the Hessian as importance. Eight columns, which the order of
//! the factor keeps side by side, become the [cell](trine_formats::types::cells) whose errors cost least once all later
//! columns have made up for them; then each feeds its error back, as if it had been rounded by itself.
//!
//! When a row is rounded, [descent](super::descent) goes over it a few times: scales of groups and of blocks become those
//! of least squares for the points that were chosen, and points those that suit these scales.

use trine_formats::types::cells::{CELL, Cell, CellStep, Cells, Search};
use trine_formats::types::num::{f16_at, f16_to_f32, f32_to_f16, put_f16};
use trine_formats::types::{EncodeFn, Part, TypeInfo};

use super::descent::Descent;
use super::factor::Factor;
use super::rows::{Block, Strip};

/// How often a row is gone over.
const SWEEPS: usize = 3;

/// Rows of one width that become one type, whose columns are chosen eight at a time.
pub struct Celled<'a> {
    factor: &'a Factor,
    info: &'static TypeInfo,
    cells: &'static Cells,
    search: Search,
    encode: EncodeFn,
    /// The blocks of all rows, whose scales count.
    blocks: Vec<u8>,
    /// The steps of all cells, row after row.
    steps: Vec<CellStep>,
    /// The cells that they become.
    chosen: Vec<Cell>,
}

/// The part of a row's cost that a common factor on some of its columns decides: with the factor `1 + x` it falls by
/// `2 x slope - x^2 curve`.
#[derive(Clone, Copy, Default)]
struct Stretch {
    slope: f64,
    curve: f64,
}

impl<'a> Celled<'a> {
    /// No rows yet.
    pub fn new(info: &'static TypeInfo, cells: &'static Cells, encode: EncodeFn, factor: &'a Factor) -> Celled<'a> {
        let search = Search::new(cells);
        let (blocks, steps, chosen) = (Vec::new(), Vec::new(), Vec::new());
        Celled { factor, info, cells, search, encode, blocks, steps, chosen }
    }

    /// Chooses the points of a row again.
    fn choose_again(&mut self, row: usize, descent: &mut Descent<'_>) {
        let factor = self.factor;
        let per_row = factor.columns() / CELL;
        for i in (0..descent.order.len()).step_by(CELL) {
            let cell = row * per_row + descent.order[i] / CELL;
            let (step, upper) = (self.steps[cell], factor.upper_of_cell(i));
            if step.scale == 0.0 {
                continue;
            }
            let wanted = descent.wanted_together(i, upper);
            let best = self.search.best(step, &wanted, upper);
            let values = self.cells.values(step, best).map(f64::from);
            let cost = |values: [f64; CELL]| {
                let off: [f64; CELL] = std::array::from_fn(|j| wanted[j] - values[j]);
                let of = |j: usize| (0..CELL).fold(0.0, |sum, k| sum + descent.metric.at(i + j, i + k) * off[k]);
                (0..CELL).fold(0.0, |sum, j| sum + off[j] * of(j))
            };
            let is_less = cost(values) < cost(std::array::from_fn(|j| descent.value(i + j)));
            if is_less {
                (0..CELL).for_each(|j| descent.set(i + j, values[j]));
                self.chosen[cell] = best;
            }
        }
    }

    /// The places in order of the columns of some neighbouring cells of a row.
    fn places(&self, cells: std::ops::Range<usize>) -> impl Iterator<Item = usize> + Clone + '_ {
        cells.flat_map(|cell| self.factor.place(cell)..self.factor.place(cell) + CELL)
    }

    /// The cost of some neighbouring cells of a row as a function of their scale.
    fn stretch(&self, cells: std::ops::Range<usize>, descent: &Descent<'_>) -> Stretch {
        let places: Vec<usize> = self.places(cells).collect();
        let mut found = Stretch::default();
        for &i in &places {
            let of = places.iter().fold(0.0, |sum, &j| sum + descent.metric.at(i, j) * descent.value(j));
            found.slope += descent.value(i) * descent.gradient(i);
            found.curve += descent.value(i) * of;
        }
        found
    }

    /// Gives the groups of block number `block` of a row the multiples of least squares, then the block its float.
    fn fit(&mut self, (row, block): (usize, usize), descent: &mut Descent<'_>) {
        let cells: &'static Cells = self.cells;
        let Some(scales) = &cells.scales else { return };
        let (per_block, per_row) = (self.info.block / CELL, self.factor.columns() / CELL);
        let at = self.info.at(Part::Scale);
        let bytes = (row * (per_row / per_block) + block) * self.info.bytes;
        let bytes = bytes..bytes + self.info.bytes;
        let all = block * per_block..(block + 1) * per_block;
        for group in 0..per_block / scales.cells {
            let first = all.start + group * scales.cells;
            let Stretch { slope, curve } = self.stretch(first..first + scales.cells, descent);
            let old = scales.read(&self.blocks[bytes.clone()], group);
            let own = f64::from(old) + 0.5;
            let wanted = own * (1.0 + slope / curve) - 0.5;
            if !(curve > 0.0 && wanted.is_finite()) {
                continue;
            }
            let new = wanted.round().clamp(0.0, 15.0) as u8;
            if is_better(slope, curve, (f64::from(new) + 0.5) / own - 1.0) {
                scales.write(&mut self.blocks[bytes.clone()], group, new);
                self.take_steps(row, bytes.clone(), all.clone(), descent);
            }
        }
        let Stretch { slope, curve } = self.stretch(all.clone(), descent);
        let own = f64::from(f16_at(&self.blocks[bytes.clone()], at));
        let wanted = f16_to_f32(f32_to_f16((own * (1.0 + slope / curve)) as f32));
        if curve > 0.0 && wanted.is_finite() && is_better(slope, curve, f64::from(wanted) / own - 1.0) {
            put_f16(&mut self.blocks[bytes.clone()], at, wanted);
            self.take_steps(row, bytes, all, descent);
        }
    }

    /// The cells of a block have the steps that its bytes say now, and the values that these make.
    fn take_steps(
        &mut self,
        row: usize,
        bytes: std::ops::Range<usize>,
        cells: std::ops::Range<usize>,
        descent: &mut Descent<'_>,
    ) {
        let first = row * (self.factor.columns() / CELL);
        let of_row = first + cells.start..first + cells.end;
        self.cells.steps(&self.blocks[bytes], &mut self.steps[of_row]);
        for cell in cells {
            let values = self.cells.values(self.steps[first + cell], self.chosen[first + cell]);
            for (j, value) in values.into_iter().enumerate() {
                descent.set(self.factor.place(cell) + j, value.into());
            }
        }
    }
}

/// True if the factor `1 + x` makes a row cost less.
fn is_better(slope: f64, curve: f64, x: f64) -> bool {
    2.0 * x * slope - x * x * curve > 0.0
}

impl Strip for Celled<'_> {
    fn push(&mut self, weights: &[f32], blocks: &mut [u8]) {
        (self.encode)(weights, Some(self.factor.importance()), blocks);
        self.blocks.extend_from_slice(blocks);
        let before = self.steps.len();
        self.steps.resize(before + weights.len() / CELL, CellStep::default());
        self.chosen.resize(self.steps.len(), Cell::default());
        let steps = self.steps[before..].chunks_exact_mut(self.info.block / CELL);
        for (block, steps) in blocks.chunks_exact(self.info.bytes).zip(steps) {
            self.cells.steps(block, steps);
        }
    }

    fn round(&mut self, row: usize, block: &mut Block<'_>) {
        let per_row = self.factor.columns() / CELL;
        for (number, columns) in block.order.as_chunks::<CELL>().0.iter().enumerate() {
            let (i, cell) = (number * CELL, row * per_row + columns[0] / CELL);
            let step = self.steps[cell];
            let weights = std::array::from_fn(|j| block.weights[i + j]);
            let best = self.search.best(step, &weights, &block.upper(i));
            for (j, value) in self.cells.values(step, best).into_iter().enumerate() {
                block.feed(i + j, value.into());
            }
            self.chosen[cell] = best;
        }
    }

    fn descend(&mut self, row: usize, descent: &mut Descent<'_>) {
        for _ in 0..SWEEPS {
            for block in 0..self.factor.columns() / self.info.block {
                self.fit((row, block), descent);
            }
            self.choose_again(row, descent);
        }
    }

    fn write(&self, out: &mut [u8]) {
        out.copy_from_slice(&self.blocks);
        let blocks = out.chunks_exact_mut(self.info.bytes);
        for (block, cells) in blocks.zip(self.chosen.chunks_exact(self.info.block / CELL)) {
            self.cells.place(cells, block);
        }
    }
}
