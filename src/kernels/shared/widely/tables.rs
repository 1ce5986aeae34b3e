//! Products of one token in single precision whose lanes are sixteen rows.
//!
//! A weight adds `-x`, `+x` or 0 to each of the four accumulators of its lane, and its code says which. With rows side
//! by side the activation is the same for all, so that a column has a table of four floats for each accumulator and one
//! instruction looks up what eight rows add. No masks have to be made of the codes, and the sums of a row end in a lane
//! of their own. To add a zero, of whatever sign, changes no bit of an accumulator, which is never -0.

use trine_formats::widely::{CHUNK, Shape};

use super::ROWS;
#[cfg(target_arch = "x86_64")]
use super::{RowSums, Unit, combine_rows, row_scales};

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
