//! Encoding with importance for the types of 32-weight blocks: Q4_0, Q4_1, Q5_0 and Q5_1.
//!
//! The error of element `j` weighs `importance[j] * sqrt(sigma2 + x[j]^2)`, `sigma2` the mean square of
//! the whole row: large weights matter more, and small ones are not forgotten.
//!
//! A NaN anywhere in a row makes every scale of it NaN in Q4_0 and Q5_0, as in ggml (whose file writer
//! refuses such a tensor). The bytes are ggml's except for the sign of that NaN when NaNs of both signs
//! meet: which of two NaN operands an addition returns is undefined in C and in Rust.

use super::search::{AffineGrid, fit_affine, fit_symmetric, tile};

/// Weights per block.
const BLOCK: usize = 32;

/// Blocks that are fitted side by side. A short group at the end is filled up with zeros.
const LANES: usize = 8;
const VECTORS: usize = LANES / 4;

/// The candidates for scale and offset that ggml tries for Q4_1 and Q5_1.
const GRID_FROM: f32 = -0.9;
const GRID_STEP: f32 = 0.05;
const GRID_LAST: i32 = 36;

/// Mean square of a row: summed in order, divided by the length as a float.
fn mean_square(x: &[f32]) -> f32 {
    let mut sum = 0.0f32;
    for v in x {
        sum += v * v;
    }
    sum / x.len() as f32
}

/// Walks a row in groups of `LANES` blocks: elements and their error weights.
fn for_each_group(x: &[f32], importance: &[f32], mut f: impl FnMut(&[f32], &[f32])) {
    let sigma2 = mean_square(x);
    let mut weight = [0.0; BLOCK * LANES];
    for (x, qw) in x
        .chunks(BLOCK * LANES)
        .zip(importance.chunks(BLOCK * LANES))
    {
        for ((w, v), q) in weight.iter_mut().zip(x).zip(qw) {
            *w = q * (sigma2 + v * v).sqrt();
        }
        f(x, &weight[..x.len()]);
    }
}

/// Fits each block of a row to `scale * (code - half)` and hands scale and codes (`0..2 * half`) to
/// `write`, in order.
pub(super) fn encode_symmetric(
    x: &[f32],
    importance: &[f32],
    half: f32,
    mut write: impl FnMut(f32, &[u8; BLOCK]),
) {
    for_each_group(x, importance, |x, weight| {
        let fit = fit_symmetric::<BLOCK, VECTORS>(&tile(x), &tile(weight), half);
        let blocks = x.as_chunks::<BLOCK>().0.iter().enumerate();
        for ((k, x), &scale) in blocks.zip(fit.scale.as_flattened()) {
            write(scale, &x.map(|v| fit.code(k, v)));
        }
    });
}

/// Fits each block of a row to `scale * code + min` and hands scale, min and codes (`0..=top`) to
/// `write`, in order.
pub(super) fn encode_affine(
    x: &[f32],
    importance: &[f32],
    top: f32,
    mut write: impl FnMut(f32, f32, &[u8; BLOCK]),
) {
    let grid = AffineGrid {
        top,
        from: GRID_FROM,
        step: GRID_STEP,
        last: GRID_LAST,
    };
    for_each_group(x, importance, |x, weight| {
        let fit = fit_affine::<BLOCK, VECTORS, false>(&tile(x), &tile(weight), grid);
        let blocks = x.as_chunks::<BLOCK>().0.iter().enumerate();
        let lines = fit
            .scale
            .as_flattened()
            .iter()
            .zip(fit.neg_min.as_flattened());
        for ((k, x), (&scale, &neg_min)) in blocks.zip(lines) {
            write(scale, -neg_min, &x.map(|v| fit.code(k, v)));
        }
    });
}
