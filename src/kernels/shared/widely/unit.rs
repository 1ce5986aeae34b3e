//! A unit of rows, and the sums and scales of its rows.

use trine_formats::widely::{Scope, Shape, int8};

use super::act;
use super::form::{BLOCK_BYTES, CodeLayout, ROWS};
use crate::sizes::{MAX_COLUMNS, size};

/// Sums `rr`, `ri`, `ir`, `ii` of every stream of a row, the first eight of them at most in use.
pub type Sums = [[f32; 4]; 8];

/// Consecutive rows of a matrix: one unit of their layout.
#[derive(Clone, Copy)]
pub struct Unit<'a> {
    /// Shape of the whole matrix.
    pub shape: &'a Shape,
    /// Number of the first row in the matrix.
    pub first: usize,
    /// How many of the unit's rows are rows of the matrix.
    pub rows: usize,
    /// Layout of the codes.
    pub form: CodeLayout,
    /// The unit.
    pub weights: &'a [u8],
    /// The scales of the whole matrix.
    pub scales: &'a [f32],
    /// Prefetch distance, bytes, of kernels that prefetch ([`CodeLayout::prefetches`]); 0: no prefetch.
    pub ahead: usize,
}

impl Unit<'_> {
    /// Checks that the lengths of weights and scales fit the shape.
    pub(crate) fn check_weights(&self) {
        let (shape, form) = (self.shape, self.form);
        assert!(0 < shape.columns && shape.columns <= MAX_COLUMNS, "{} columns", shape.columns);
        assert!((1..=4).contains(&shape.stages), "{} stages", shape.stages);
        assert!(0 < self.rows && self.rows <= form.rows(), "rows of a unit");
        let end = self.first.checked_add(self.rows);
        assert!(end.is_some_and(|end| end <= shape.rows), "rows");
        assert_eq!(self.weights.len(), form.unit_bytes(shape), "weights");
        let scales = size([shape.groups(), shape.group_scales()]);
        assert_eq!(self.scales.len(), scales, "scales");
    }

    /// Checks that all lengths fit each other.
    pub(crate) fn check(&self, acts: &[u8], tokens: usize, out: &[f32]) {
        self.check_weights();
        let row = self.form.path().act_bytes(self.shape);
        assert_eq!(acts.len(), size([tokens, row]), "activations");
        assert_eq!(out.len(), size([2, self.rows, tokens]), "outputs");
        assert!(acts.as_ptr().addr().is_multiple_of(64), "alignment of activations");
    }
}

/// Sums of sixteen rows: `rr`, `ri`, `ir`, `ii` of every stream.
pub(crate) type RowSums = [[[f32; ROWS]; 4]; 8];

/// Scales of sixteen rows, `[U, W][stage][axis][row]`.
pub(crate) type RowScales = [[[f32; ROWS]; 2]; 8];

/// The scales of a unit's rows in a tile. To be compiled for the instruction set of its caller.
#[inline(always)]
pub(crate) fn row_scales(unit: &Unit<'_>, tile: usize) -> RowScales {
    let shape = unit.shape;
    let mut factors = RowScales::default();
    let all = factors.as_flattened_mut();
    if shape.scope == Scope::Tensor {
        for (factors, &scale) in all.iter_mut().zip(unit.scales) {
            *factors = [scale; ROWS];
        }
        return factors;
    }
    for r in 0..ROWS {
        // rows that are missing have the scales of the last one
        let row = unit.first + r.min(unit.rows - 1);
        let scales = shape.scales_of(unit.scales, row, tile);
        for (factors, &scale) in all.iter_mut().zip(scales) {
            factors[r] = scale;
        }
    }
    factors
}

/// [`combine`] for sixteen rows at once. To be compiled for the instruction set of its caller.
#[inline(always)]
pub(crate) fn combine_rows(stages: usize, factors: &RowScales, sums: &RowSums, out: &mut [[f32; ROWS]; 2]) {
    let [a, b] = out;
    for t in 0..stages {
        let ([re, im], [rr, ri, ir, ii]) = (&factors[t], &sums[t]);
        for r in 0..ROWS {
            a[r] += re[r] * rr[r];
            a[r] -= im[r] * ii[r];
            b[r] += re[r] * ri[r];
            b[r] += im[r] * ir[r];
        }
        let ([re, im], [rr, ri, ir, ii]) = (&factors[stages + t], &sums[stages + t]);
        for r in 0..ROWS {
            a[r] += re[r] * rr[r];
            a[r] += im[r] * ii[r];
            b[r] -= re[r] * ri[r];
            b[r] += im[r] * ir[r];
        }
    }
}

/// The products of a unit and one row of 8-bit activations, block after block: `add(codes, x, sums)` adds what a block
/// of one stream gives. To be compiled for the instruction set of its caller.
#[inline(always)]
pub(crate) fn by_blocks(
    unit: &Unit<'_>,
    acts: &[u8],
    out: &mut [[f32; ROWS]; 2],
    mut add: impl FnMut(&[u8; BLOCK_BYTES], &act::Block<'_>, &mut [[f32; ROWS]; 4]),
) {
    let (streams, stages) = (unit.shape.streams(), unit.shape.stages);
    let (of_tile, blocks) = blocks_of(unit.shape);
    let weights = unit.weights.as_chunks().0;
    *out = Default::default();
    for (tile, first) in (0..blocks).step_by(of_tile).enumerate() {
        let mut sums = RowSums::default();
        for b in first..first + of_tile {
            let x = act::block(acts, blocks, b);
            let codes = &weights[b * streams..][..streams];
            for (codes, sums) in codes.iter().zip(&mut sums) {
                add(codes, &x, sums);
            }
        }
        combine_rows(stages, &row_scales(unit, tile), &sums, out);
    }
}

/// Blocks of 8-bit activations that share their scales of weights, and all there are.
pub(crate) fn blocks_of(shape: &Shape) -> (usize, usize) {
    let blocks = shape.columns.div_ceil(int8::BLOCK);
    (if shape.tiles() > 1 { 1 } else { blocks }, blocks)
}
