//! The gated activations of the feed-forward block.

use std::sync::LazyLock;

use rayon::prelude::*;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use crate::math::{silu, tanhf};

/// Elements handed to a thread at a time.
const CHUNK: usize = 1 << 14;

/// `gate = silu(gate) * up`, element by element (ggml `ggml_vec_swiglu_f32`, its 4-lane form).
pub fn swiglu(gate: &mut [f32], up: &[f32]) {
    gate.par_chunks_mut(CHUNK)
        .zip(up.par_chunks(CHUNK))
        .for_each(|(g, u)| {
            g.iter_mut().zip(u).for_each(|(g, u)| *g = silu(*g) * u);
        });
}

/// `gate = relu(gate)^2 * up`, element by element: ReLU, square, product, each rounded.
pub fn squared_reglu(gate: &mut [f32], up: &[f32]) {
    gate.par_chunks_mut(CHUNK)
        .zip(up.par_chunks(CHUNK))
        .for_each(|(g, u)| {
            g.iter_mut().zip(u).for_each(|(g, u)| {
                let r = if *g > 0.0 { *g } else { 0.0 };
                *g = (r * r) * u;
            });
        });
}

/// `gate = gelu(gate) * up`, element by element (ggml `ggml_vec_geglu_f32`).
///
/// GELU is looked up by the half-float value of its argument; at or below -10 the product is 0, at or
/// above 10 GELU is the identity.
pub fn geglu(gate: &mut [f32], up: &[f32]) {
    let table = &**GELU;
    gate.par_chunks_mut(CHUNK)
        .zip(up.par_chunks(CHUNK))
        .for_each(|(g, u)| {
            g.iter_mut().zip(u).for_each(|(g, u)| {
                *g = if *g <= -10.0 {
                    0.0
                } else if *g >= 10.0 {
                    *g * u
                } else {
                    table[usize::from(f32_to_f16(*g))] * u
                };
            });
        });
}

/// The tanh form of GELU for every half float, rounded to half and widened again.
static GELU: LazyLock<Vec<f32>> = LazyLock::new(|| {
    const SQRT_2_OVER_PI: f32 = f32::from_bits(0x3f4c_422a);
    const CUBIC: f32 = 0.044715;
    (0..=u16::MAX)
        .map(|h| {
            let x = f16_to_f32(h);
            let y = 0.5 * x * (1.0 + tanhf(SQRT_2_OVER_PI * x * (1.0 + CUBIC * x * x)));
            f16_to_f32(f32_to_f16(y))
        })
        .collect()
});
