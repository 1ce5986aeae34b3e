//! Kernels for widely linear matrices.
//!
//! In single precision every processor has the same; with 8-bit activations `SDOT` adds four products at once where
//! there is such an instruction.

use crate::shared::widely::{CodeLayout, Int8Kernel, ROWS, StreamSums, Unit};
use crate::{Isa, Level};

mod batch;
mod bytes;
mod words;

pub(crate) use batch::{chains, groups};

/// The kernel of a form in single precision; `None` where the plain one serves.
pub(crate) fn sums_of(isa: Isa, form: CodeLayout) -> Option<StreamSums> {
    (isa.has(Level::Neon) && form == CodeLayout::Words).then_some(words)
}

fn words(streams: usize, words: &[u8], re: &[u8], im: &[u8], out: &mut [[f32; 4]]) {
    let chunks = re.len() / 64;
    assert_eq!((re.len(), im.len()), (64 * chunks, 64 * chunks), "chunks");
    assert_eq!(words.len(), 4 * streams * chunks, "words");
    assert_eq!(out.len(), streams, "streams");
    // SAFETY: `sums_of` hands this function out only for an `Isa` that includes NEON, and the lengths were compared.
    unsafe { words::word_sums_neon(streams, chunks, words, re, im, out) }
}

/// The kernel with 8-bit activations.
pub(crate) fn int8_of(isa: Isa) -> Option<Int8Kernel> {
    match isa.vectors() {
        Level::Neon => Some(int8_neon),
        Level::Dotprod | Level::I8mm => Some(int8_dotprod),
        _ => None,
    }
}

fn int8_neon(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]) {
    // SAFETY: `int8_of` hands this function out only for NEON, and `Unit::check` has compared the lengths.
    unsafe { bytes::multiply_neon(unit, acts, out) }
}

fn int8_dotprod(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]) {
    // SAFETY: `int8_of` hands this function out only for processors with `SDOT`, and `Unit::check` has compared the
    // lengths.
    unsafe { bytes::multiply_dotprod(unit, acts, out) }
}
