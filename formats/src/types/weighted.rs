//! Encoding with importance for the types of 32-weight blocks: Q4_0, Q4_1, Q5_0 and Q5_1.
//!
//! The error of element `j` weighs `importance[j] * sqrt(sigma2 + x[j]^2)`, `sigma2` the mean square of
//! the whole row.
//!
//! A NaN anywhere in a row makes every scale of it NaN in Q4_0 and Q5_0, as in ggml (whose file writer
//! refuses such a tensor). The bytes are ggml's except for the sign of that NaN when NaNs of both signs
//! meet: which of two NaN operands an addition returns is undefined in C and in Rust.

use super::EncodeFn;
use super::lanes::{LANES, Simd};
use super::num::are_finite;
use super::search::{AffineGrid, error_weights, fit_affine, fit_symmetric, side_by_side};

/// Weights per block.
const BLOCK: usize = 32;

/// The candidates for scale and offset that ggml tries for Q4_1 and Q5_1, with codes up to `top`.
const fn grid(top: f32) -> AffineGrid {
    AffineGrid { top, from: -0.9, step: 0.05, last: 36 }
}

/// A row whose blocks are fitted sixteen at a time, a lane for each.
pub(super) struct Row<'a, const BYTES: usize> {
    pub x: &'a [f32],
    pub importance: &'a [f32],
    pub out: &'a mut [u8],
    /// Encodes rows with values that the instruction set does not suit.
    pub definition: EncodeFn,
}

impl<const BYTES: usize> Row<'_, BYTES> {
    /// True if the instruction set computes the bits of the definition for these values.
    #[inline(always)]
    fn suits<S: Simd>(&self) -> bool {
        S::IS_TOTAL || are_finite(self.x) && are_finite(self.importance)
    }

    /// Hands the row to the definition. All of it, because its mean square is that of the whole row.
    fn define(self) {
        (self.definition)(self.x, Some(self.importance), self.out);
    }

    /// Sum of squares in order, divided by the length.
    fn mean_square(&self) -> f32 {
        let mut sum = 0.0f32;
        for v in self.x {
            sum += v * v;
        }
        sum / self.x.len() as f32
    }

    /// Fits each block to `scale * (code - half)` and has `write` put scale and codes (`0..2 * half`) into it.
    #[inline(always)]
    pub fn encode_symmetric<S: Simd>(self, simd: S, half: f32, write: impl Fn(&mut [u8; BYTES], f32, &[u8; BLOCK])) {
        if !self.suits::<S>() {
            return self.define();
        }
        let sigma2 = simd.splat(self.mean_square());
        let batches = self.x.chunks(LANES * BLOCK);
        let batches = batches.zip(self.importance.chunks(LANES * BLOCK));
        let out = self.out.as_chunks_mut().0.chunks_mut(LANES);
        for ((x, importance), out) in batches.zip(out) {
            let lanes = side_by_side::<S, BLOCK>(simd, x);
            let w = error_weights(&lanes, &side_by_side(simd, importance), sigma2);
            let fit = fit_symmetric(simd, &lanes, &w, half);
            let blocks = x.as_chunks::<BLOCK>().0.iter().zip(out);
            for (k, (x, out)) in blocks.enumerate() {
                write(out, fit.scale[k], &fit.codes(simd, k, x));
            }
        }
    }

    /// Fits each block to `scale * code + min` and has `write` put scale, min and codes (`0..=top`) into it.
    #[inline(always)]
    pub fn encode_affine<S: Simd>(self, simd: S, top: f32, write: impl Fn(&mut [u8; BYTES], f32, f32, &[u8; BLOCK])) {
        if !self.suits::<S>() {
            return self.define();
        }
        let sigma2 = simd.splat(self.mean_square());
        let batches = self.x.chunks(LANES * BLOCK);
        let batches = batches.zip(self.importance.chunks(LANES * BLOCK));
        let out = self.out.as_chunks_mut().0.chunks_mut(LANES);
        for ((x, importance), out) in batches.zip(out) {
            let lanes = side_by_side::<S, BLOCK>(simd, x);
            let w = error_weights(&lanes, &side_by_side(simd, importance), sigma2);
            let [fit] = fit_affine::<S, BLOCK, 1, false>(simd, &[lanes], &[w], grid(top));
            let Some(fit) = fit else {
                return self.define();
            };
            let blocks = x.as_chunks::<BLOCK>().0.iter().zip(out);
            for (k, (x, out)) in blocks.enumerate() {
                let codes = fit.codes(simd, k, x);
                write(out, fit.scale[k], -fit.neg_min[k], &codes);
            }
        }
    }
}
