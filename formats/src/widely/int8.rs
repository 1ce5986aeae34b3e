//! Products with activations of 8 bits: exact integer sums over blocks of 64 columns, the fast mode.
//!
//! The real and the imaginary parts of the activations are each quantized in blocks of [`BLOCK`] columns,
//! [`quantize_activations`]. Within a block the sums of [`product`](super::product_row) are integers, at most
//! `64 · 127` in magnitude, so that any order gives them; between blocks `sum = sum + scale · integer`, the product
//! rounded first, blocks in ascending order from +0. [`combine`] follows, once for a row or once for a tile, which is
//! just a block.

pub use crate::anyprec::{BLOCK, QuantizedActivations, quantize_activations};

use super::{CHUNK, Shape, TILE, axis_is_imaginary, combine, is_positive};

const _: () = assert!(BLOCK == TILE && BLOCK.is_multiple_of(CHUNK));

/// Quantized activations: of the real parts, and of the imaginary parts.
pub fn quantize(shape: &Shape, x: &[f32]) -> [QuantizedActivations; 2] {
    let (re, im) = x.split_at(shape.columns);
    [re, im].map(quantize_activations)
}

/// The real and the imaginary part of output `row`, as [`product_row`](super::product_row) has them.
///
/// # Panics
/// When a length does not fit the shape.
pub fn product_row(
    shape: &Shape,
    row: usize,
    words: &[u32],
    scales: &[f32],
    x: &[QuantizedActivations; 2],
) -> (f32, f32) {
    assert_eq!(words.len(), shape.row_words(), "words of a row");
    let streams = shape.streams();
    let blocks = shape.columns.div_ceil(BLOCK);
    let of_tile = if shape.tiles() > 1 { 1 } else { blocks };
    let mut y = (0.0, 0.0);
    for (tile, first) in (0..blocks).step_by(of_tile).enumerate() {
        let mut sums = vec![[0.0f32; 4]; streams];
        for block in first..blocks.min(first + of_tile) {
            let words = words.chunks(BLOCK / CHUNK * streams).nth(block);
            let columns = block * BLOCK..shape.columns.min((block + 1) * BLOCK);
            let [re, im] = [&x[0], &x[1]].map(|x| (&x.values[columns.clone()], x.scales[block]));
            for (stream, sums) in sums.iter_mut().enumerate() {
                let words = words.unwrap_or_default();
                let [rr, ri, ir, ii] = block_sums(words, stream, streams, re.0, im.0);
                for (sum, (integer, scale)) in sums.iter_mut().zip([(rr, re.1), (ri, im.1), (ir, re.1), (ii, im.1)]) {
                    *sum += scale * integer as f32;
                }
            }
        }
        let scales = shape.scales_of(scales, row, tile);
        combine(&mut y, &sums, |i| scales[i]);
    }
    y
}

/// The integers `rr`, `ri`, `ir`, `ii` of one stream of a block.
fn block_sums(words: &[u32], stream: usize, streams: usize, re: &[i8], im: &[i8]) -> [i32; 4] {
    let mut sums = [0; 4];
    for (j, (&re, &im)) in re.iter().zip(im).enumerate() {
        let word = words[j / CHUNK * streams + stream];
        let code = (word >> (2 * (j % CHUNK)) & 3) as u8;
        let sign = if is_positive(code) { 1 } else { -1 };
        let axis = 2 * usize::from(axis_is_imaginary(code));
        sums[axis] += sign * i32::from(re);
        sums[axis + 1] += sign * i32::from(im);
    }
    sums
}
