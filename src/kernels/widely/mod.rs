//! Products with widely linear matrices, by the fastest kernels that a processor has.

use trine_formats::widely::{CHUNK, combine};

use crate::Isa;
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64::widely as aarch64;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::widely as x86_64;
use crate::shared::widely::{Int8Kernel, scalar};

pub use crate::shared::widely::{CodeLayout, Path, ROWS, StreamSums, Sums, Unit};

pub mod batch;
pub mod tables;
#[cfg(test)]
mod tests;

/// `out[(2 r + p) * tokens + t]`: the real part, `p` = 0, and the imaginary part, `p` = 1, of row `r` of the unit times
/// token `t`. `acts` are rows that [`Path::arrange`] has made.
///
/// # Panics
/// When lengths do not fit, `acts` are not aligned to 64 bytes, or the form is none of the instruction set
/// ([`CodeLayout::of`]) or [`CodeLayout::Lanes`], whose products are in [`tables`].
pub fn multiply(isa: Isa, unit: &Unit<'_>, acts: &[u8], tokens: usize, out: &mut [f32]) {
    unit.check(acts, tokens, out);
    if tokens == 0 {
        return;
    }
    match unit.form {
        CodeLayout::Rows16 => multiply_int8(isa, unit, acts, tokens, out),
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

/// The kernel of a form in single precision.
///
/// # Panics
/// When the form is none of the instruction set.
pub fn sums_of(isa: Isa, form: CodeLayout) -> StreamSums {
    #[cfg(target_arch = "x86_64")]
    if let Some(sums) = x86_64::sums_of(isa, form) {
        return sums;
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(sums) = aarch64::sums_of(isa, form) {
        return sums;
    }
    assert_eq!(form, CodeLayout::Words, "form of {isa}");
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
