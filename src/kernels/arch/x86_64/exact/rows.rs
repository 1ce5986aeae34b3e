//! The rows of [`crate::halves::exact`].

use std::ops::Range;

use super::outputs::{self, CELLS, Probabilities};
use super::scores::{self, Out};
use crate::arch::x86_64::tiles::Hardware;
use crate::shared::halves::{BLOCK, F16Encoding, LANES, LINE, Line, STEPS, Tiles, has_rows};
use crate::sizes::size;
use crate::{Isa, Level};

/// Most elements of a key or value: sums of products of bytes stay below 2^27.
const ELEMENTS: usize = 1024;

/// True if there are tiles for keys of `key` elements and values of `value` elements.
pub fn fits(isa: Isa, key: usize, value: usize) -> bool {
    let size = |n: usize, unit: usize| (unit..=ELEMENTS).contains(&n) && n.is_multiple_of(unit);
    isa.has(Level::Amx) && size(key, 16) && size(value, LANES)
}

/// Rows of queries.
pub struct Queries {
    inner: scores::Queries,
    size: usize,
    rows: usize,
}

impl Queries {
    /// Rows of `size` elements each, rounded to half floats.
    ///
    /// # Panics
    /// When there are no tiles for them ([`fits`]), or a row has another length.
    pub fn new<'q>(isa: Isa, size: usize, q: impl ExactSizeIterator<Item = &'q [f32]>) -> Queries {
        assert!(fits(isa, size, LANES), "no tiles for queries of {size}");
        let rows = q.len();
        Queries {
            // SAFETY: `isa` proves AVX-512; the size is a multiple of 16.
            inner: unsafe { scores::Queries::new(q, size) },
            size,
            rows,
        }
    }

    /// Scores of some rows, and of their neighbours as it happens, for the keys of a tile, of which `there` were
    /// stored: row r from `out[r * stride]` on. Sets `open[r]` where the tiles cannot tell the bits of a score of row
    /// r: the caller computes that row in the order of the definition.
    ///
    /// # Panics
    /// When a slice is too short.
    pub fn scores(
        &mut self,
        keys: (&[Line], F16Encoding),
        there: usize,
        rows: Range<usize>,
        (out, stride): (&mut [f32], usize),
        open: &mut [bool],
    ) {
        let there_are = keys.0.len() >= size([self.size, BLOCK]) / STEPS;
        assert!(there_are, "keys too short");
        assert!(rows.end <= self.rows && open.len() == self.rows);
        assert!(has_rows(out.len(), self.rows, stride, LANES), "output too short");
        let out = Out { at: out.as_mut_ptr(), stride };
        // SAFETY: `new` has seen tiles and vectors; keys, marks and outputs were just checked.
        unsafe {
            self.inner.scores::<Hardware>(keys, there, rows, out, open);
        }
    }
}

/// Sums of the values of some rows.
pub struct Outputs {
    inner: outputs::Outputs,
    lanes: usize,
    rows: usize,
}

impl Outputs {
    /// Zeros.
    ///
    /// # Panics
    /// When there are no tiles for values of `lanes` elements ([`fits`]).
    pub fn new(isa: Isa, rows: usize, lanes: usize) -> Outputs {
        assert!(fits(isa, 16, lanes));
        Outputs { inner: outputs::Outputs::new(rows, lanes), lanes, rows }
    }

    /// Adds a chunk of cells, whole tiles, of which `there` were stored, to some rows and, with probabilities of 0, to
    /// others. Row r's probabilities are `p[r * stride..]`, of which `seen(r)` may be other than 0. False where these
    /// values are none for tiles: then all sums are of no use.
    ///
    /// # Panics
    /// When a slice is too short.
    pub fn add(
        &mut self,
        values: Tiles<'_>,
        forms: &[F16Encoding],
        there: usize,
        (p, stride): (&[f32], usize),
        rows: Range<usize>,
        seen: impl Fn(usize) -> usize,
    ) -> bool {
        let tile = size([values.quads, STEPS]);
        let cells = size([forms.len(), tile]);
        assert!(cells <= CELLS && cells.is_multiple_of(16) && there <= cells);
        let needed = size([forms.len(), values.quads, values.lines]);
        assert!(values.words.len() >= needed, "words too short");
        assert!(values.wanted == (0, values.lines) && values.lines * LINE == self.lanes);
        assert!(rows.end <= self.rows && has_rows(p.len(), self.rows, stride, cells));
        let p = Probabilities { at: p.as_ptr(), stride, cells };
        // SAFETY: `new` has seen tiles and vectors; values and probabilities were just checked.
        unsafe { self.inner.add::<Hardware>(values, forms, there, p, rows, seen) }
    }

    /// Writes the outputs of a row, `[lanes]`. False where the tiles cannot tell their bits: the caller computes the
    /// row in the order of the definition.
    ///
    /// # Panics
    /// When the output has another length.
    pub fn finish(&self, row: usize, out: &mut [f32]) -> bool {
        assert!(row < self.rows && out.len() == self.lanes);
        // SAFETY: `new` has seen AVX-512.
        unsafe { self.inner.finish(row, out) }
    }
}
