//! Sums of exact products of half floats: attention's scores and outputs, and matrices of half floats.
//!
//! All are `acc[row][lane] += m[step][lane] * coef[row][step]`, steps ascending. A product of two half
//! floats is exact in `f64`, so a fused multiply-add rounds exactly where the reference's multiplication
//! and addition round, and any instruction set gives the same bits.
//!
//! **Layout.** Four consecutive steps of a lane are the 16-bit fields of one 64-bit word, the first
//! step in the lowest; eight lanes are a [`Line`]. A matrix is made of tiles of some steps, a tile of
//! blocks of four lines (the last may have fewer), a block is `[steps of the tile / 4][lines]`. So what one
//! pass over the registers reads is in sequence, and so are its blocks.
//!
//! **Widening.** A half float's magnitude at bits 42..57 and its sign at bit 63 make the `f64` of value `w * 2^-1008`:
//! a shift or two and a mask for eight lanes, where conversion instructions would be the limit of the loop. Small f16
//! values are stored times 1024 in effect, see [`form`], so that none becomes a subnormal `f64`. The coefficients make
//! up for it: they are times [`SCALE`]. Plain f16 values come out 1024 times too small, which the caller corrects by
//! [`mend`]; infinities and NaN come out wrong. So f16 values are stored with their [`F16Encoding`], and those with
//! infinities or NaN are multiplied by the `special` functions.

use std::ops::Range;

pub use crate::line::{LINE, Line};
pub use form::F16Encoding;
pub use memory::Lines;

pub mod form;
mod memory;

/// Steps of a word.
pub const STEPS: usize = 4;
/// Lines of a block.
pub const BLOCK: usize = 4;
/// Lanes of `dots`.
pub const LANES: usize = BLOCK * LINE;
/// Factor on all coefficients, 2^998.
pub const SCALE: f64 = f64::from_bits((1023 + 998) << 52);

/// The same for bfloats, which all stand as they are, 2^896: theirs is an exponent of eight bits, at 52..60, and a
/// mantissa of seven.
pub const BRAIN_SCALE: f64 = f64::from_bits((1023 + 896) << 52);

/// Rows of coefficients, each times [`SCALE`]: row `r` starts at `data[r * stride]`.
#[derive(Clone, Copy)]
pub struct Coefficients<'a> {
    /// Rows.
    pub data: &'a [f64],
    /// From row to row.
    pub stride: usize,
    /// Number of rows.
    pub rows: usize,
}

impl<'a> Coefficients<'a> {
    /// `rows` of them from row `first` on.
    pub fn rows(self, first: usize, rows: usize) -> Coefficients<'a> {
        Coefficients { data: &self.data[first * self.stride..], rows, ..self }
    }

    pub(crate) fn check(self, steps: usize) {
        let there = has_rows(self.data.len(), self.rows, self.stride, steps);
        assert!(there, "coefficients too short");
    }
}

/// True if `len` elements hold `rows` rows of `width`, each `stride` after the one before. No size wraps around.
pub(crate) fn has_rows(len: usize, rows: usize, stride: usize, width: usize) -> bool {
    let Some(before) = rows.checked_sub(1) else {
        return true;
    };
    let end = before.checked_mul(stride).and_then(|n| n.checked_add(width));
    end.is_some_and(|end| end <= len)
}

/// True if the half float is an infinity or a NaN.
#[inline]
pub fn is_special(half: u16) -> bool {
    half & 0x7C00 == 0x7C00
}

/// Scales sums of plain f16 values to those of normalized ones. Exact: a sum of products of f16 values is zero or at
/// least 2^-48, and no sum of as many as there can be comes near the greatest `f32`.
pub fn mend(sums: &mut [f32]) {
    sums.iter_mut().for_each(|sum| *sum *= form::PLAIN);
}

/// Tiles of `accumulate`, and the order in which it goes through them.
#[derive(Clone, Copy)]
pub struct Tiles<'a> {
    /// Whole tiles.
    pub words: &'a [Line],
    /// Lines of a tile.
    pub lines: usize,
    /// Lines wanted, whole blocks; lane 0 is the first of theirs.
    pub wanted: (usize, usize),
    /// Words of steps of a tile.
    pub quads: usize,
    /// Words of steps after which the next block of lines has its turn: few to read memory in sequence, many to
    /// put sums down and take them up less often.
    pub at_once: usize,
}

impl Tiles<'_> {
    /// The value of one step of a lane.
    pub fn value(self, form: F16Encoding, lane: usize, step: usize) -> f64 {
        let (tile, quad) = (step / STEPS / self.quads, step / STEPS % self.quads);
        let line = self.wanted.0 + lane / LINE;
        let at = (tile * self.lines + line / BLOCK * BLOCK) * self.quads;
        let stride = BLOCK.min(self.lines - line / BLOCK * BLOCK);
        let line = self.words[at + quad * stride + line % BLOCK];
        field(form, line.0[lane % LINE], step)
    }
}

/// Field `step % 4` of a word as a value.
pub(crate) fn field(form: F16Encoding, word: u64, step: usize) -> f64 {
    f64::from(form.value((word >> (16 * (step % STEPS))) as u16))
}

/// [`dots`] for words that hold infinities or NaN.
pub(crate) fn dots_special(words: &[Line], quads: usize, coefs: Coefficients<'_>, out: &mut [f32], out_stride: usize) {
    for r in 0..coefs.rows {
        let coef = &coefs.data[r * coefs.stride..][..STEPS * quads];
        for (lane, out) in out[r * out_stride..][..LANES].iter_mut().enumerate() {
            let mut sum = 0.0;
            for (step, c) in coef.iter().enumerate() {
                let line = words[step / STEPS * BLOCK + lane / LINE];
                sum += field(F16Encoding::Special, line.0[lane % LINE], step) * (c / SCALE);
            }
            *out = sum as f32;
        }
    }
}

/// `accumulate` for one row, words that hold infinities or NaN, and only the steps that count. `form` is that of the
/// tile of a step; coefficients of plain ones are as the others.
pub fn accumulate_special(
    tiles: Tiles<'_>,
    form: impl Fn(usize) -> F16Encoding,
    steps: Range<usize>,
    coef: &[f64],
    acc: &mut [f64],
) {
    for step in steps {
        for (lane, acc) in acc.iter_mut().enumerate() {
            *acc += tiles.value(form(step), lane, step) * (coef[step] / SCALE);
        }
    }
}

/// Words of some form, which hold no infinities or NaN, to another that is no less than theirs or their values.
pub fn change_form(lines: &mut [Line], from: F16Encoding, to: F16Encoding) {
    let change = match (from == F16Encoding::Normalized, to == F16Encoding::Normalized) {
        (true, false) => form::denormalized,
        (false, true) => form::normalized,
        _ => return,
    };
    for word in lines.iter_mut().flat_map(|line| &mut line.0) {
        let fields = (0..STEPS).map(|i| change((*word >> (16 * i)) as u16));
        *word = fields.rev().fold(0, |word, half| word << 16 | u64::from(half));
    }
}

/// The encoding that f16 values in words need.
pub fn form_of_lines(lines: &[Line]) -> F16Encoding {
    let words = lines.iter().flat_map(|line| line.0);
    F16Encoding::of_halves(words.flat_map(|word| (0..STEPS).map(move |i| (word >> (16 * i)) as u16)))
}
