//! The activations of the feed-forward block.

use super::CHUNK;
pub use crate::arch::{Activation, HeadGate};
use crate::kernels::{Isa, elements};
use crate::math::{expf, expm1f, logf, silu, tanhf};
use crate::pool;

/// The other factor where there is no gate: a product with 1 is exact.
static ONES: [f32; CHUNK] = [1.0; CHUNK];

impl Activation {
    /// `gate = f(gate) * up`, element by element.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn gate(self, isa: Isa, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len(), "lengths of a gate");
        pool::chunks_mut(gate, CHUNK, |i, gate| {
            self.chunk(isa, gate, &up[i * CHUNK..][..gate.len()]);
        });
    }

    /// `x = f(x)`, element by element: without a gate.
    pub fn apply(self, isa: Isa, x: &mut [f32]) {
        pool::chunks_mut(x, CHUNK, |_, x| self.chunk(isa, x, &ONES[..x.len()]));
    }

    /// [`Activation::gate`] in the calling thread.
    pub(super) fn chunk(self, isa: Isa, gate: &mut [f32], up: &[f32]) {
        match self {
            Activation::Silu => elements::swiglu(isa, gate, up),
            Activation::Gelu => elements::geglu(isa, gate, up),
            Activation::SquaredRelu => elements::squared_reglu(isa, gate, up),
            Activation::Tanh => each(gate, up, |x, up| tanhf(x) * up),
            Activation::Relu => each(gate, up, |x, up| if x > 0.0 { x * up } else { 0.0 }),
            Activation::OpenAiSwiglu => each(gate, up, |x, up| {
                let (x, up) = (at_most(x, 7.0), up.clamp(-7.0, 7.0));
                x / (1.0 + expf(1.702 * -x)) * (up + 1.0)
            }),
            Activation::ClampedSilu(limit) => each(gate, up, |x, up| {
                let (x, up) = (at_most(x, limit), up.clamp(-limit, limit));
                x / (1.0 + expf(-x)) * up
            }),
            Activation::LimitedSilu(limit) => each(gate, up, |x, up| {
                let least = |x: f32| if x < limit { x } else { limit };
                let up = least(up);
                least(silu(x)) * if up > -limit { up } else { -limit }
            }),
            Activation::Xielu([n, a, b, c]) => each(gate, up, |x, up| {
                let y = match x > 0.0 {
                    true => a * x * x + b * x,
                    false => (expm1f(x.min(c)) - x) * n + b * x,
                };
                y * up
            }),
            Activation::Situ([b, c]) => each(gate, up, |x, up| {
                let bounded = |x: f32, bound: f32| tanhf(x * (1.0 / bound)) * bound;
                let up = if c > 0.0 { bounded(up, c) } else { up };
                bounded(x, b) * sigmoid(x) * up
            }),
        }
    }
}

impl HeadGate {
    /// `heads *= f(gate)`, where a gate is on as many elements, one or a head's, as the two lengths divide.
    pub fn apply(self, heads: &mut [f32], gate: &[f32]) {
        let size = (heads.len() / gate.len().max(1)).max(1);
        let at_once = CHUNK.div_ceil(size);
        pool::chunks_mut(heads, at_once * size, |i, heads| {
            for (heads, &gate) in heads.chunks_exact_mut(size).zip(&gate[i * at_once..]) {
                let factor = match self {
                    HeadGate::Sigmoid => sigmoid(gate),
                    HeadGate::Softplus => softplus(gate),
                    HeadGate::Itself => gate,
                };
                heads.iter_mut().for_each(|h| *h *= factor);
            }
        });
    }
}

/// 1 / (1 + e^-x).
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + expf(-x))
}

/// ln(1 + e^x), from 20 on x.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { logf(1.0 + expf(x)) }
}

fn each(gate: &mut [f32], up: &[f32], f: impl Fn(f32, f32) -> f32) {
    gate.iter_mut().zip(up).for_each(|(gate, &up)| *gate = f(*gate, up));
}

/// Every row of `x` times the sigmoid of its number in `gate`: the sigmoid itself where it is `plain`, else the quotient
/// of SiLU and its argument.
pub fn scale_by_gate(x: &mut [f32], gate: &[f32], plain: bool) {
    let width = (x.len() / gate.len().max(1)).max(1);
    for (row, &g) in x.chunks_exact_mut(width).zip(gate) {
        let factor = match plain {
            true => sigmoid(g),
            false => g / (1.0 + expf(-g)) / g,
        };
        super::scale(row, factor);
    }
}

/// `std::min(x, limit)`: NaN stays.
fn at_most(x: f32, limit: f32) -> f32 {
    if limit < x { limit } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gate_the_function_stands_alone() {
        let isa = Isa::detect();
        for f in [Activation::Silu, Activation::Gelu, Activation::SquaredRelu, Activation::Relu] {
            let x: Vec<f32> = (0..CHUNK + 77).map(|i| i as f32 * 0.01 - 80.0).collect();
            let (mut alone, mut gated) = (x.clone(), x);
            f.apply(isa, &mut alone);
            let ones = vec![1.0; gated.len()];
            f.gate(isa, &mut gated, &ones);
            assert!(alone.iter().zip(&gated).all(|(a, b)| a.to_bits() == b.to_bits()), "{f:?}");
        }
    }

    #[test]
    fn gates_on_heads_are_on_elements_or_on_heads() {
        let n = 3 * CHUNK;
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        for size in [1, 3] {
            let gate: Vec<f32> = (0..n / size).map(|i| (i % 90) as f32 - 40.0).collect();
            for (f, of) in [
                (HeadGate::Sigmoid, (|g| 1.0 / (1.0 + expf(-g))) as fn(f32) -> f32),
                (HeadGate::Softplus, |g| if g > 20.0 { g } else { logf(1.0 + expf(g)) }),
                (HeadGate::Itself, |g| g),
            ] {
                let mut y = x.clone();
                f.apply(&mut y, &gate);
                let expected = |i: usize| x[i] * of(gate[i / size]);
                assert!((0..n).all(|i| y[i].to_bits() == expected(i).to_bits()), "{f:?}");
            }
        }
    }

    #[test]
    fn bounded_gates_are_bounded_on_the_sides_that_count() {
        let isa = Isa::detect();
        let gated = |f: Activation, x: f32, up: f32| {
            let mut gate = [x];
            f.gate(isa, &mut gate, &[up]);
            gate[0]
        };
        let silu = |x: f32| x / (1.0 + expf(-x));
        let clamped = Activation::ClampedSilu(2.0);
        assert_eq!(gated(clamped, 5.0, -9.0), silu(2.0) * -2.0);
        assert_eq!(gated(clamped, -5.0, 1.5), silu(-5.0) * 1.5);
        let quick = |x: f32| x / (1.0 + expf(1.702 * -x));
        assert_eq!(gated(Activation::OpenAiSwiglu, 9.0, -8.0), quick(7.0) * -6.0);
        assert_eq!(gated(Activation::OpenAiSwiglu, -9.0, 0.25), quick(-9.0) * 1.25);
        assert_eq!(gated(Activation::Relu, -1.0, f32::INFINITY), 0.0);
        assert_eq!(gated(Activation::Relu, 3.0, -2.0), -6.0);
    }

    #[test]
    fn xielu_has_two_sides() {
        let (n, a, b, c) = (0.75, 1.25, 0.5, -1e-6);
        let mut x = [3.0, 0.0, -2.0, f32::NAN, f32::NEG_INFINITY, -1e-7];
        Activation::Xielu([n, a, b, c]).apply(Isa::detect(), &mut x);
        assert_eq!(x[0], 1.25 * 3.0 * 3.0 + 0.5 * 3.0);
        assert_eq!(x[1], expm1f(c) * n);
        assert_eq!(x[2], (expm1f(-2.0) + 2.0) * n - 1.0);
        assert!(x[3].is_nan() && x[4].is_nan());
        assert_eq!(x[5], (expm1f(c) + 1e-7) * n + b * -1e-7);
    }

    #[test]
    fn bounds_of_gates_are_kept_after_silu() {
        let mut gate = [9.0, -9.0, 1.0, f32::NAN];
        let up = [1.0, 1.0, -7.0, f32::NAN];
        Activation::LimitedSilu(3.0).gate(Isa::detect(), &mut gate, &up);
        // the reference's bounds turn NaN into the upper one
        assert_eq!(gate, [3.0, silu(-9.0), silu(1.0) * -3.0, 9.0]);
        assert_eq!(sigmoid(0.0), 0.5);
        assert_eq!(softplus(25.0), 25.0);
    }
}
