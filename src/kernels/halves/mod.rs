//! Sums of exact products of half floats, by the fastest kernels that a processor has: attention's scores and outputs,
//! and matrices of half floats. [`Line`] and [`F16Encoding`] say how they are stored.

use std::ops::Range;

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use crate::arch::doubles;
use crate::arch::halves::{self as sums, native};
use crate::shared::halves::dots_special;
use crate::sizes::size;
use crate::{Isa, Level};

pub use crate::shared::halves::{
    BLOCK, BRAIN_SCALE, Coefficients, F16Encoding, LANES, LINE, Line, Lines, SCALE, STEPS, Tiles, accumulate_special,
    change_form, form, form_of_lines, is_special, mend,
};

#[cfg(target_arch = "x86_64")]
pub mod exact;
#[cfg(test)]
mod tests;

/// Rows of coefficients that share the widening of a line; more are done in turns.
pub fn rows_at_once(isa: Isa) -> usize {
    match isa.vectors() {
        Level::Avx2 => doubles::AVX2_ROWS,
        Level::Avx512 => doubles::AVX512_ROWS,
        Level::Neon | Level::Dotprod | Level::I8mm => doubles::NEON_ROWS,
        Level::Simd128 => doubles::SIMD128_ROWS,
        _ => 1,
    }
}

/// `out[r * out_stride + lane] = f32(sum over the steps)` for [`LANES`] lanes; `words` is one tile
/// of one block.
///
/// # Panics
/// When a slice is too short.
pub fn dots(
    isa: Isa,
    (words, form): (&[Line], F16Encoding),
    quads: usize,
    coefs: Coefficients<'_>,
    out: &mut [f32],
    out_stride: usize,
) {
    if coefs.rows == 0 {
        return;
    }
    if form == F16Encoding::Special {
        return dots_special(words, quads, coefs, out, out_stride);
    }
    sums::dots(isa, words, quads, coefs, out, out_stride);
    if form == F16Encoding::Plain {
        let rows = out.chunks_mut(out_stride.max(1)).take(coefs.rows);
        rows.for_each(|row| mend(&mut row[..LANES]));
    }
}

/// [`dots`] over the bytes of words, little endian; `BRAIN` ones are bfloats, and their coefficients are times
/// [`BRAIN_SCALE`]. With one row, the bytes `ahead` bytes behind those in work are prefetched; 0 leaves that to the
/// processor.
///
/// # Panics
/// When a slice is too short.
pub fn dots_of_bytes<const BRAIN: bool>(
    isa: Isa,
    words: &[u8],
    quads: usize,
    coefs: Coefficients<'_>,
    ahead: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    sums::dots_of_bytes::<BRAIN>(isa, words, quads, coefs, ahead, out, out_stride);
}

/// `acc[r * acc_stride + lane] += sum over the steps that row `r` sees`, in order; step 0 is the first of the tiles,
/// and of the coefficients. Those of steps whose f16 values are plain are times [`form::PLAIN`] too.
///
/// Neither the first nor the last of `steps` falls from one row to the next, and coefficients of steps that a row does
/// not see are zeros as far as its neighbours see them: rows are computed together, and adding a zero changes no sum
/// but a negative zero, which no sum of outputs is.
///
/// # Panics
/// When a slice is too short.
pub fn accumulate(
    isa: Isa,
    tiles: Tiles<'_>,
    steps: &dyn Fn(usize) -> Range<usize>,
    coefs: Coefficients<'_>,
    acc: &mut [f64],
    acc_stride: usize,
) {
    sums::accumulate(isa, tiles, steps, coefs, acc, acc_stride);
}

/// `out = half(x) * SCALE`: values rounded to half floats, as coefficients.
///
/// # Panics
/// When the lengths differ.
pub fn coefficients(isa: Isa, x: &[f32], out: &mut [f64]) {
    assert_eq!(x.len(), out.len(), "coefficients of values");
    let done = native::coefficients(isa, x, out);
    for (out, &x) in out[done..].iter_mut().zip(&x[done..]) {
        *out = f64::from(f16_to_f32(f32_to_f16(x))) * SCALE;
    }
}

/// Stores `half(x)` as all steps of one lane: of one tile of one block, as [`dots`] reads it. The form is to be no less
/// than that of the values ([`F16Encoding::of`]).
///
/// # Panics
/// When the block has fewer steps or lanes.
pub fn put_lane(isa: Isa, x: &[f32], block: &mut [Line], lane: usize, form: F16Encoding) {
    let quads = x.len().div_ceil(STEPS);
    assert!(lane < LANES && block.len() >= quads * BLOCK, "no lane {lane} of {} steps", x.len());
    let done = native::put_lane(isa, x, block, lane, form);
    let mut lines = block.chunks_exact_mut(BLOCK).skip(done / STEPS);
    for x in x[done..].chunks(LINE) {
        let halves = round(isa, x, form);
        for (four, lines) in halves.chunks(STEPS).zip(&mut lines).take(x.len().div_ceil(STEPS)) {
            let word = four.iter().rev().fold(0, |word, &h| word << 16 | u64::from(h));
            lines[lane / LINE].0[lane % LINE] = word;
        }
    }
}

/// Up to eight values as f16 in an encoding, and zeros.
#[inline]
fn round(isa: Isa, x: &[f32], form: F16Encoding) -> [u16; LINE] {
    let rounded = <&[f32; LINE]>::try_from(x).ok().and_then(|x| native::round(isa, x));
    let halves = rounded.unwrap_or_else(|| {
        let mut halves = [0; LINE];
        halves.iter_mut().zip(x).for_each(|(h, &x)| *h = f32_to_f16(x));
        halves
    });
    match form {
        F16Encoding::Normalized => halves.map(form::normalized),
        _ => halves,
    }
}

/// Stores `half(x)` as one step of all lanes of a tile of `quads` words of steps; the first of four steps clears the
/// others. The form is to be no less than that of the values ([`F16Encoding::of`]).
///
/// # Panics
/// When the tile has fewer lanes or steps.
pub fn put_step(isa: Isa, x: &[f32], tile: &mut [Line], quads: usize, step: usize, form: F16Encoding) {
    let lines = x.len().div_ceil(LINE);
    assert!(step / STEPS < quads && tile.len() >= size([lines, quads]), "no step {step} of {} lanes", x.len());
    let shift = 16 * (step % STEPS);
    let keep = if shift == 0 { 0 } else { !(0xFFFF << shift) };
    for (i, x) in x.chunks(LANES).enumerate() {
        let first = i * BLOCK;
        let stride = BLOCK.min(lines - first);
        let row = &mut tile[first * quads + step / STEPS * stride..][..stride];
        for (x, line) in x.chunks(LINE).zip(row) {
            let put = |x| native::put_eight(isa, x, line, shift as u32, keep, form);
            if !<&[f32; LINE]>::try_from(x).is_ok_and(put) {
                let halves = round(isa, x, form);
                for (half, word) in halves.into_iter().zip(&mut line.0) {
                    *word = *word & keep | u64::from(half) << shift;
                }
            }
        }
    }
}
