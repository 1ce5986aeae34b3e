//! Kernels for widely linear matrices.
//!
//! The functions `…_sums` are whole: what a row costs happens inside, and no other function is part of their loops, so
//! that a test can look at their machine code.

use super::packed::with_prefetch;
use crate::shared::widely::tables::Outputs;
use crate::shared::widely::{CodeLayout, Int8Kernel, ROWS, StreamSums, Unit};
use crate::{Isa, Level};

mod batch;
mod bytes256;
mod bytes512;
mod planes512;
mod tables256;
mod tables512;
mod tiles;
mod words256;

pub(crate) use batch::{chains, groups};
pub(crate) use tables512::arrange as arrange_tables;
pub(crate) use tiles::{Memory as TilesMemory, tiles};

/// The kernel of a form in single precision; `None` where the plain one serves.
pub(crate) fn sums_of(isa: Isa, form: CodeLayout) -> Option<StreamSums> {
    match (isa.vectors(), form) {
        (Level::Avx2, CodeLayout::Words) => Some(words_avx2),
        (Level::Avx512, CodeLayout::Words) => Some(words_avx512),
        (Level::Avx512, CodeLayout::Planes) => Some(planes_avx512),
        _ => None,
    }
}

/// The chunks of a call, once all lengths are known to fit them.
fn chunks(streams: usize, words: &[u8], re: &[u8], im: &[u8], out: &[[f32; 4]]) -> usize {
    let chunks = re.len() / 64;
    assert!(matches!(streams, 2 | 4 | 6 | 8), "streams");
    assert_eq!((re.len(), im.len()), (64 * chunks, 64 * chunks), "chunks");
    assert_eq!(words.len(), 4 * streams * chunks, "words");
    assert_eq!(out.len(), streams, "streams");
    chunks
}

macro_rules! whole {
    ($($name:ident = $kernel:path;)*) => { $(
        fn $name(streams: usize, words: &[u8], re: &[u8], im: &[u8], out: &mut [[f32; 4]]) {
            let chunks = chunks(streams, words, re, im, out);
            // SAFETY: `sums_of` hands this function out only for an `Isa` that includes the instruction set, and the
            // lengths were compared.
            unsafe { $kernel(streams, chunks, words, re, im, out) }
        }
    )* };
}

whole! {
    words_avx2 = words256::word_sums_avx2;
    words_avx512 = planes512::word_sums_avx512;
    planes_avx512 = planes512::plane_sums_avx512;
}

/// [`crate::shared::widely::tables::multiply`] for an instruction set that includes AVX2, once lengths were checked.
pub(crate) fn tables(isa: Isa, unit: &Unit<'_>, tables: &[f32], out: &mut Outputs) {
    assert!(isa.has(Level::Avx2), "tables of {isa}");
    let ahead = unit.ahead;
    // SAFETY: `isa` proves that the processor has the instruction set.
    unsafe {
        match isa.vectors() {
            Level::Avx512 => with_prefetch!(ahead => tables512::multiply(unit, tables, ahead, out)),
            _ => with_prefetch!(ahead => tables256::multiply(unit, tables, ahead, out)),
        }
    }
}

/// The kernel with 8-bit activations.
pub(crate) fn int8_of(isa: Isa) -> Option<Int8Kernel> {
    match isa.vectors() {
        Level::Avx2 => Some(int8_avx2),
        Level::Avx512 => Some(int8_avx512),
        _ => None,
    }
}

fn int8_avx2(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]) {
    let ahead = unit.ahead;
    // SAFETY: `int8_of` hands this function out only for AVX2, and `Unit::check` has compared the lengths.
    unsafe { with_prefetch!(ahead => bytes256::multiply(unit, acts, ahead, out)) }
}

fn int8_avx512(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]) {
    let ahead = unit.ahead;
    // SAFETY: `int8_of` hands this function out only for AVX-512 with VNNI.
    unsafe { with_prefetch!(ahead => bytes512::multiply(unit, acts, ahead, out)) }
}
