//! The gated activations of the feed-forward block.

use super::CHUNK;
use crate::kernels::{Isa, elements};
use crate::pool;

/// The function of a gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Activation {
    /// x / (1 + e^-x) (ggml `ggml_vec_swiglu_f32`, its 4-lane form).
    Silu,
    /// The tanh form of GELU, looked up by half float (ggml `ggml_vec_geglu_f32`).
    Gelu,
    /// max(x, 0)^2: ReLU, square, product, each rounded.
    SquaredRelu,
}

impl Activation {
    /// `gate = f(gate) * up`, element by element.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn gate(self, isa: Isa, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len(), "lengths of a gate");
        let gated = match self {
            Activation::Silu => elements::swiglu,
            Activation::Gelu => elements::geglu,
            Activation::SquaredRelu => elements::squared_reglu,
        };
        pool::chunks_mut(gate, CHUNK, |i, gate| {
            gated(isa, gate, &up[i * CHUNK..][..gate.len()]);
        });
    }
}
