//! Products with widely linear matrices: the kernels of [`trine_formats::widely`]'s definitions.
//!
//! In single precision every weight adds an activation to an accumulator or takes it away: the inner loops select,
//! change signs and add, and do not multiply; only the few sums of a row are multiplied by scales. Vector lanes are the
//! sixteen columns of a chunk, as in the definition, sixteen rows ([`tables`]), or for many tokens the tokens
//! ([`batch`]). With 8-bit activations lanes are sixteen rows, and what is summed is integers.
//!
//! Weights stand in one of four forms ([`Form`]): the words of the file, the same bits sorted into planes, or sixteen
//! rows interleaved, by columns or by lanes. A unit, one row or sixteen, is asked for at a time, with all tokens.

use trine_formats::widely::{CHUNK, Scope, Shape, combine, int8};

use crate::Isa;
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64::widely as aarch64;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::widely as x86_64;
use crate::proof::compiled_for_avx2;
use crate::sizes::{MAX_COLUMNS, size};

pub(crate) mod act;
pub mod batch;
mod form;
mod scalar;
pub mod tables;
#[cfg(test)]
mod tests;

pub use form::{Form, ROWS};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use act::Block;
#[cfg(target_arch = "x86_64")]
pub(crate) use act::block;
pub(crate) use form::{BLOCK_BYTES, BLOCK_CHUNKS, CHUNK_BYTES, lane_words};

/// How products are computed; the two are different definitions and give different bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Path {
    /// Single precision, [`trine_formats::widely::product_row`].
    #[default]
    Exact,
    /// 8-bit activations, [`trine_formats::widely::int8`].
    Int8,
}

/// Sums `rr`, `ri`, `ir`, `ii` of every stream of a row, the first eight of them at most in use.
pub type Sums = [[f32; 4]; 8];

/// Consecutive rows of a matrix: one unit of their form.
#[derive(Clone, Copy)]
pub struct Unit<'a> {
    /// Shape of the whole matrix.
    pub shape: &'a Shape,
    /// Number of the first row in the matrix.
    pub first: usize,
    /// How many of the unit's rows are rows of the matrix.
    pub rows: usize,
    /// Form of the weights.
    pub form: Form,
    /// The unit.
    pub weights: &'a [u8],
    /// The scales of the whole matrix.
    pub scales: &'a [f32],
    /// How many bytes ahead of what is read memory is asked for, where kernels do that ([`Form::asks_ahead`]); 0 asks
    /// for nothing.
    pub ahead: usize,
}

impl Unit<'_> {
    /// Checks that the lengths of weights and scales fit the shape.
    fn check_weights(&self) {
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
    fn check(&self, acts: &[u8], tokens: usize, out: &[f32]) {
        self.check_weights();
        let row = self.form.path().act_bytes(self.shape);
        assert_eq!(acts.len(), size([tokens, row]), "activations");
        assert_eq!(out.len(), size([2, self.rows, tokens]), "outputs");
        assert!(acts.as_ptr().addr().is_multiple_of(64), "alignment of activations");
    }
}

impl Path {
    /// Bytes of a row of activations, a multiple of 64.
    pub fn act_bytes(self, shape: &Shape) -> usize {
        match self {
            Path::Exact => 2 * 4 * CHUNK * shape.chunks(),
            Path::Int8 => act::int8_bytes(shape),
        }
    }

    /// Arranges a row of activations, real parts and then imaginary parts, for all forms of the path.
    ///
    /// # Panics
    /// When a length does not fit the shape.
    pub fn arrange(self, isa: Isa, shape: &Shape, x: &[f32], out: &mut [u8]) {
        assert_eq!(x.len(), 2 * shape.columns, "activations");
        assert_eq!(out.len(), self.act_bytes(shape), "activation row");
        let path = self;
        compiled_for_avx2!(fma, isa, arrange(path: Path, shape: &Shape, x: &[f32], out: &mut [u8]), arrange);
    }
}

#[inline(always)]
fn arrange(path: Path, shape: &Shape, x: &[f32], out: &mut [u8]) {
    match path {
        Path::Exact => act::arrange_floats(shape, x, out),
        Path::Int8 => act::arrange_bytes(shape, x, out),
    }
}

/// `out[(2 r + p) * tokens + t]`: the real part, `p` = 0, and the imaginary part, `p` = 1, of row `r` of the unit times
/// token `t`. `acts` are rows that [`Path::arrange`] has made.
///
/// # Panics
/// When lengths do not fit, `acts` are not aligned to 64 bytes, or the form is none of the instruction set
/// ([`Form::of`]) or [`Form::Lanes`], whose products are in [`tables`].
pub fn multiply(isa: Isa, unit: &Unit<'_>, acts: &[u8], tokens: usize, out: &mut [f32]) {
    unit.check(acts, tokens, out);
    if tokens == 0 {
        return;
    }
    match unit.form {
        Form::Rows16 => multiply_int8(isa, unit, acts, tokens, out),
        _ => multiply_exact(isa, unit, acts, tokens, out),
    }
}

/// Multiplies single rows, tile by tile.
fn multiply_exact(isa: Isa, unit: &Unit<'_>, acts: &[u8], tokens: usize, out: &mut [f32]) {
    let (shape, streams) = (unit.shape, unit.shape.streams());
    let sums = sums_of(isa, unit.form);
    let row = Path::Exact.act_bytes(shape);
    let (chunks, of_tile) = (shape.chunks(), shape.chunks_of_tile());
    let chunk_bytes = 4 * streams;
    for (t, x) in acts.chunks_exact(row).enumerate() {
        let (re, im) = x.split_at(row / 2);
        let mut y = (0.0, 0.0);
        for (tile, first) in (0..chunks).step_by(of_tile).enumerate() {
            let end = chunks.min(first + of_tile);
            let words = &unit.weights[first * chunk_bytes..end * chunk_bytes];
            let bytes = 4 * CHUNK * first..4 * CHUNK * end;
            let mut all = Sums::default();
            sums(streams, words, &re[bytes.clone()], &im[bytes], &mut all[..streams]);
            let scales = shape.scales_of(unit.scales, unit.first, tile);
            combine(&mut y, &all[..streams], |i| scales[i]);
        }
        (out[t], out[tokens + t]) = y;
    }
}

/// `sums(streams, words, re, im, out)`: the four sums of each stream over some chunks. `words` are `[chunk][stream]`,
/// `re` and `im` the floats of as many chunks.
pub type StreamSums = fn(streams: usize, words: &[u8], re: &[u8], im: &[u8], out: &mut [[f32; 4]]);

/// The kernel of a form in single precision.
///
/// # Panics
/// When the form is none of the instruction set.
pub fn sums_of(isa: Isa, form: Form) -> StreamSums {
    #[cfg(target_arch = "x86_64")]
    if let Some(sums) = x86_64::sums_of(isa, form) {
        return sums;
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(sums) = aarch64::sums_of(isa, form) {
        return sums;
    }
    assert_eq!(form, Form::Words, "form of {isa}");
    scalar::sums
}

/// Sixteen rows, with 8-bit activations.
fn multiply_int8(isa: Isa, unit: &Unit<'_>, acts: &[u8], tokens: usize, out: &mut [f32]) {
    let kernel = int8_of(isa);
    let row = Path::Int8.act_bytes(unit.shape);
    let mut tile = [[0.0f32; ROWS]; 2];
    for (t, acts) in acts.chunks_exact(row).enumerate() {
        kernel(unit, acts, &mut tile);
        for (r, out) in out.chunks_exact_mut(2 * tokens).enumerate() {
            (out[t], out[tokens + t]) = (tile[0][r], tile[1][r]);
        }
    }
}

/// `kernel(unit, acts, out)`: real and imaginary parts of the sixteen outputs of a unit; what rows that are missing
/// give is of no account.
pub(crate) type Int8Kernel = fn(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]);

fn int8_of(isa: Isa) -> Int8Kernel {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = x86_64::int8_of(isa) {
        return kernel;
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(kernel) = aarch64::int8_of(isa) {
        return kernel;
    }
    let _ = isa;
    scalar::int8
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
