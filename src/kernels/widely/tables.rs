//! Products of one token in single precision whose lanes are sixteen rows.

use trine_formats::widely::{CHUNK, Shape};

use super::{CodeLayout, Path, Unit};
use crate::Isa;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::widely as x86_64;
use crate::shared::widely::tables::COLUMN;

pub use crate::shared::widely::tables::{Outputs, floats};

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

/// The products of a unit of [`CodeLayout::Lanes`] and the row of activations that `tables` are made of. What rows that are
/// missing give is of no account.
///
/// # Panics
/// When lengths do not fit, the form is another one, or the instruction set has no such products ([`CodeLayout::of`]).
pub fn multiply(isa: Isa, unit: &Unit<'_>, tables: &[f32], out: &mut Outputs) {
    unit.check_weights();
    assert_eq!(unit.form, CodeLayout::Lanes, "form");
    assert_eq!(tables.len(), floats(unit.shape), "tables");
    #[cfg(target_arch = "x86_64")]
    if isa.has(crate::Level::Avx2) {
        return x86_64::tables(isa, unit, tables, out);
    }
    panic!("form of {isa}: {out:?}");
}
