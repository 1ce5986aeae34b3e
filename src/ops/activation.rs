//! The gated activations of the feed-forward block.

use super::CHUNK;
use crate::kernels::{Isa, elements};
use crate::pool;

/// A gated activation: `gate = f(gate) * up`, element by element.
pub type Gated = fn(Isa, &mut [f32], &[f32]);

/// `gate = silu(gate) * up` (ggml `ggml_vec_swiglu_f32`, its 4-lane form).
pub fn swiglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
    split(elements::swiglu, isa, gate, up);
}

/// `gate = relu(gate)^2 * up`: ReLU, square, product, each rounded.
pub fn squared_reglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
    split(elements::squared_reglu, isa, gate, up);
}

/// `gate = gelu(gate) * up` (ggml `ggml_vec_geglu_f32`), GELU looked up by half float.
pub fn geglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
    split(elements::geglu, isa, gate, up);
}

fn split(gated: Gated, isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "lengths of a gate");
    pool::chunks_mut(gate, CHUNK, |i, gate| {
        gated(isa, gate, &up[i * CHUNK..][..gate.len()]);
    });
}
