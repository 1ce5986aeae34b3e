//! Products of one token in single precision whose lanes are sixteen rows.
//!
//! A weight adds `-x`, `+x` or 0 to each of the four accumulators of its lane, and its code says which. With rows side
//! by side the activation is the same for all, so that a column has a table of four floats for each accumulator and one
//! instruction looks up what eight rows add. No masks have to be made of the codes, and the sums of a row end in a lane
//! of their own. To add a zero, of whatever sign, changes no bit of an accumulator, which is never -0.

use trine_formats::widely::{CHUNK, Shape};

use super::{Form, Path, ROWS, Unit};
#[cfg(target_arch = "x86_64")]
use super::{RowSums, combine_rows, row_scales};
use crate::Isa;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::widely as x86_64;

/// Floats of a column: for `rr`, `ri`, `ir` and `ii` what codes 0 to 3 add.
pub(crate) const COLUMN: usize = 16;
/// Floats of the sums of one lane and stream.
#[cfg(target_arch = "x86_64")]
pub(crate) const SUMS: usize = 4 * ROWS;

/// Real and imaginary parts of the outputs of a unit.
pub type Outputs = [[f32; ROWS]; 2];

/// Floats of the tables of all columns.
pub fn floats(shape: &Shape) -> usize {
    shape.chunks() * CHUNK * COLUMN
}

/// Makes the tables, `[lane][chunk][accumulator][code]`, of one row of activations that [`Path::arrange`] has made for
/// [`Path::Exact`].
///
/// # Panics
/// When a length does not fit the shape.
pub fn arrange(isa: Isa, shape: &Shape, acts: &[u8], out: &mut [f32]) {
    assert_eq!(acts.len(), Path::Exact.act_bytes(shape), "activations");
    assert_eq!(out.len(), floats(shape), "tables");
    let (re, im) = acts.split_at(acts.len() / 2);
    let [re, im] = [re, im].map(|part| part.as_chunks::<4>().0);
    #[cfg(target_arch = "x86_64")]
    if x86_64::arrange_tables(isa, shape.chunks(), re, im, out) {
        return;
    }
    let _ = isa;
    for (lane, out) in out.chunks_exact_mut(shape.chunks() * COLUMN).enumerate() {
        let lanes = [re, im].map(|part| part[lane..].iter().step_by(CHUNK));
        let [re, im] = lanes.map(|part| part.map(|&x| f32::from_le_bytes(x)));
        for ((re, im), out) in re.zip(im).zip(out.as_chunks_mut::<COLUMN>().0) {
            *out = [-re, re, 0.0, 0.0, -im, im, 0.0, 0.0, 0.0, 0.0, -re, re, 0.0, 0.0, -im, im];
        }
    }
}

/// The products of a unit of [`Form::Lanes`] and the row of activations that `tables` are made of. What rows that are
/// missing give is of no account.
///
/// # Panics
/// When lengths do not fit, the form is another one, or the instruction set has no such products ([`Form::of`]).
pub fn multiply(isa: Isa, unit: &Unit<'_>, tables: &[f32], out: &mut Outputs) {
    unit.check_weights();
    assert_eq!(unit.form, Form::Lanes, "form");
    assert_eq!(tables.len(), floats(unit.shape), "tables");
    #[cfg(target_arch = "x86_64")]
    if isa.has(crate::Level::Avx2) {
        return x86_64::tables(isa, unit, tables, out);
    }
    panic!("form of {isa}: {out:?}");
}

/// The outputs of a unit from the sums of its lanes, `[lane][stream][accumulator][row]`: lanes are added in halves, and
/// the scales follow. To be compiled for the instruction set of its caller.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn finish(unit: &Unit<'_>, lanes: &mut [f32], out: &mut Outputs) {
    let lanes = lanes.as_chunks_mut::<ROWS>().0;
    let of_lane = unit.shape.streams() * 4;
    for half in [8, 4, 2, 1] {
        let (low, high) = lanes[..2 * half * of_lane].split_at_mut(half * of_lane);
        for (low, high) in low.iter_mut().zip(high) {
            low.iter_mut().zip(high).for_each(|(l, h)| *l += *h);
        }
    }
    let mut sums = RowSums::default();
    for (sums, lanes) in sums.iter_mut().zip(lanes[..of_lane].as_chunks().0) {
        *sums = *lanes;
    }
    *out = Default::default();
    combine_rows(unit.shape.stages, &row_scales(unit, 0), &sums, out);
}
