//! Neighbouring rows that become points of a codebook: eight columns are rounded together.
//!
//! The scales are the encoder's, with the diagonal of the Hessian as importance. Eight columns, which the order of the
//! factor keeps side by side, become the [cell](trine_formats::types::cells) whose errors cost least once all later
//! columns have made up for them; then each feeds its error back, as if it had been rounded by itself.

use trine_formats::types::cells::{CELL, Cell, CellStep, Cells, Search};
use trine_formats::types::{EncodeFn, TypeInfo};

use super::factor::Factor;
use super::rows::{Block, Strip};

/// Rows of one width that become one type, whose columns are chosen eight at a time.
pub struct Celled<'a> {
    factor: &'a Factor,
    info: &'static TypeInfo,
    cells: &'static Cells,
    search: Search,
    encode: EncodeFn,
    /// The steps of all cells, row after row.
    steps: Vec<CellStep>,
    /// The cells that they become.
    chosen: Vec<Cell>,
}

impl<'a> Celled<'a> {
    /// No rows yet.
    pub fn new(info: &'static TypeInfo, cells: &'static Cells, encode: EncodeFn, factor: &'a Factor) -> Celled<'a> {
        let search = Search::new(cells);
        Celled { factor, info, cells, search, encode, steps: Vec::new(), chosen: Vec::new() }
    }
}

impl Strip for Celled<'_> {
    fn push(&mut self, weights: &[f32], blocks: &mut [u8]) {
        (self.encode)(weights, Some(self.factor.importance()), blocks);
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

    fn write(&self, out: &mut [u8]) {
        let blocks = out.chunks_exact_mut(self.info.bytes);
        for (block, cells) in blocks.zip(self.chosen.chunks_exact(self.info.block / CELL)) {
            self.cells.place(cells, block);
        }
    }
}
