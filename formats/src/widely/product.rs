//! The product in single precision: the definition that every kernel has to equal bit by bit.
//!
//! Every operation rounds by itself; nothing is fused. For one row of `U` and `W`:
//!
//! 1. Each stream has four accumulators of sixteen lanes, which start at +0: elements on the real axis add `x_re` to
//!    [`Lanes::rr`] and `x_im` to [`Lanes::ri`], those on the imaginary axis to [`Lanes::ir`] and [`Lanes::ii`]. Column
//!    `16c + j` adds to lane `j`, chunks in ascending order, with the sign of its code.
//! 2. [`reduce`] adds the lanes of an accumulator in halves.
//! 3. [`combine`] multiplies by the scales and adds, stage by stage, first `U`, then `W`.
//!
//! Where tiles have scales, the accumulators start anew in every tile and step 3 continues with its two sums. An
//! accumulator is never −0, since it starts at +0 and sums that cancel are +0. Adding +0 therefore leaves it
//! bit-identical, so that a kernel may add zeros where another adds nothing, also for columns past the last.

use std::ops::{Add, Mul, Sub};

use super::{CHUNK, Shape, axis_is_imaginary, is_positive};

/// The accumulators of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lanes {
    /// Real axis, real parts of `x`.
    pub rr: [f32; CHUNK],
    /// Real axis, imaginary parts.
    pub ri: [f32; CHUNK],
    /// Imaginary axis, real parts.
    pub ir: [f32; CHUNK],
    /// Imaginary axis, imaginary parts.
    pub ii: [f32; CHUNK],
}

impl Lanes {
    /// The four sums.
    pub fn sums(&self) -> [f32; 4] {
        [self.rr, self.ri, self.ir, self.ii].map(reduce)
    }
}

/// The sum of the lanes: the upper half is added to the lower until one lane is left.
pub fn reduce(mut lanes: [f32; CHUNK]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// Adds the sums `rr`, `ri`, `ir`, `ii` of all streams to the real and the imaginary part of an output; `scale(i)` is
/// scale `i` of their group, `[U, W][stage][axis]`. Floats, or as many side by side as a kernel has.
#[inline(always)]
pub fn combine<F>(y: &mut (F, F), sums: &[[F; 4]], scale: impl Fn(usize) -> F)
where
    F: Copy + Add<Output = F> + Sub<Output = F> + Mul<Output = F>,
{
    let stages = sums.len() / 2;
    let (a, b) = y;
    for t in 0..stages {
        let [rr, ri, ir, ii] = sums[t];
        let [re, im] = [scale(2 * t), scale(2 * t + 1)];
        *a = *a + re * rr;
        *a = *a - im * ii;
        *b = *b + re * ri;
        *b = *b + im * ir;
        let w = stages + t;
        let [rr, ri, ir, ii] = sums[w];
        let [re, im] = [scale(2 * w), scale(2 * w + 1)];
        *a = *a + re * rr;
        *a = *a + im * ii;
        *b = *b - re * ri;
        *b = *b + im * ir;
    }
}

/// The real and the imaginary part of output `row`: elements `row` and `rows + row` of the real product. `words` are
/// the row's, `[chunk][stream]`; `scales` those of the whole matrix; `x` has the real parts and then the imaginary
/// ones.
///
/// # Panics
/// When a length does not fit the shape.
pub fn product_row(shape: &Shape, row: usize, words: &[u32], scales: &[f32], x: &[f32]) -> (f32, f32) {
    assert_eq!(words.len(), shape.row_words(), "words of a row");
    assert_eq!(x.len(), 2 * shape.columns, "activations");
    let (x_re, x_im) = x.split_at(shape.columns);
    let streams = shape.streams();
    let (tile_words, tile_columns) = (shape.chunks_of_tile() * streams, shape.chunks_of_tile() * CHUNK);
    let tiles = words.chunks(tile_words).enumerate();
    let x = x_re.chunks(tile_columns).zip(x_im.chunks(tile_columns));
    let mut y = (0.0, 0.0);
    for ((tile, words), (x_re, x_im)) in tiles.zip(x) {
        let mut lanes = vec![Lanes::default(); streams];
        let x = x_re.chunks(CHUNK).zip(x_im.chunks(CHUNK));
        for (words, (x_re, x_im)) in words.chunks_exact(streams).zip(x) {
            for (lanes, &word) in lanes.iter_mut().zip(words) {
                add_chunk(lanes, word, x_re, x_im);
            }
        }
        let sums: Vec<[f32; 4]> = lanes.iter().map(Lanes::sums).collect();
        let scales = shape.scales_of(scales, row, tile);
        combine(&mut y, &sums, |i| scales[i]);
    }
    y
}

/// The columns of one word.
fn add_chunk(lanes: &mut Lanes, word: u32, x_re: &[f32], x_im: &[f32]) {
    for (j, (&re, &im)) in x_re.iter().zip(x_im).enumerate() {
        let code = (word >> (2 * j) & 3) as u8;
        let (re, im) = match is_positive(code) {
            true => (re, im),
            false => (-re, -im),
        };
        let (to_re, to_im) = match axis_is_imaginary(code) {
            true => (&mut lanes.ir[j], &mut lanes.ii[j]),
            false => (&mut lanes.rr[j], &mut lanes.ri[j]),
        };
        *to_re += re;
        *to_im += im;
    }
}
