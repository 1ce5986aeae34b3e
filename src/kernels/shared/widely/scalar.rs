//! The products in plain Rust.

use trine_formats::widely::{CHUNK, Lanes, axis_is_imaginary, is_positive};

use super::form::CHUNK_BYTES;
use super::{ROWS, Unit, by_blocks};

/// [`super::StreamSums`] of the file's words.
pub(crate) fn sums(streams: usize, words: &[u8], re: &[u8], im: &[u8], out: &mut [[f32; 4]]) {
    let mut lanes = [Lanes::default(); 8];
    let chunks = re.chunks_exact(4 * CHUNK).zip(im.chunks_exact(4 * CHUNK)).zip(words.chunks_exact(4 * streams));
    for ((re, im), words) in chunks {
        let [re, im] = [re, im].map(|x| x.as_chunks().0);
        for (lanes, word) in lanes.iter_mut().zip(words.as_chunks().0) {
            let word = u32::from_le_bytes(*word);
            for j in 0..CHUNK {
                let code = (word >> (2 * j) & 3) as u8;
                let sign = if is_positive(code) { 0 } else { 1 << 31 };
                let [re, im] = [re, im].map(|x| f32::from_bits(u32::from_le_bytes(x[j]) ^ sign));
                let (to_re, to_im) = match axis_is_imaginary(code) {
                    true => (&mut lanes.ir[j], &mut lanes.ii[j]),
                    false => (&mut lanes.rr[j], &mut lanes.ri[j]),
                };
                *to_re += re;
                *to_im += im;
            }
        }
    }
    for (out, lanes) in out.iter_mut().zip(&lanes) {
        *out = lanes.sums();
    }
}

/// Sixteen interleaved rows with 8-bit activations.
pub(crate) fn int8(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]) {
    by_blocks(unit, acts, out, |codes, x, sums| {
        let integers = integers(codes, x.ints);
        for (k, (sums, integers)) in sums.iter_mut().zip(integers).enumerate() {
            for (sum, integer) in sums.iter_mut().zip(integers) {
                *sum += x.scales[k % 2] * integer as f32;
            }
        }
    });
}

/// `rr`, `ri`, `ir`, `ii` of sixteen rows of one stream of a block.
fn integers(codes: &[u8], x: &[u8; 128]) -> [[i32; ROWS]; 4] {
    let mut sums = [[0; ROWS]; 4];
    for (chunk, codes) in codes.chunks_exact(CHUNK_BYTES).enumerate() {
        for (i, &byte) in codes.iter().enumerate() {
            let (row, b) = (i / 4, i % 4);
            for f in 0..4 {
                let code = byte >> (2 * f) & 3;
                let column = CHUNK * chunk + 4 * f + b;
                let sign = if is_positive(code) { 1 } else { -1 };
                let axis = 2 * usize::from(axis_is_imaginary(code));
                for part in 0..2 {
                    let x = i32::from(x[64 * part + column] as i8);
                    sums[axis + part][row] += sign * x;
                }
            }
        }
    }
    sums
}
