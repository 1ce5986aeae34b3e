//! The gated activations of the feed-forward block.

use std::sync::LazyLock;

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::pexp_sixteen;
use crate::Isa;
use crate::arch::elements as native;
use crate::math::{silu, tanhf};
use crate::proof::compiled_for;
use crate::shared::GELU_ENTRIES;

/// `gate = silu(gate) * up`, element by element.
///
/// # Panics
/// When the lengths differ.
pub fn swiglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "lengths of a gate");
    let done = native::swiglu(isa, gate, up);
    let (gate, up) = (&mut gate[done..], &up[done..]);
    compiled_for!(isa, swiglu_loop(gate: &mut [f32], up: &[f32]));
}

#[inline(always)]
fn swiglu_loop(gate: &mut [f32], up: &[f32]) {
    let (gates, gate) = gate.as_chunks_mut::<16>();
    let (ups, up) = up.as_chunks::<16>();
    for (gate, up) in gates.iter_mut().zip(ups) {
        let mut e = gate.map(|g| 0.0 - g);
        pexp_sixteen(&mut e);
        for ((g, u), e) in gate.iter_mut().zip(up).zip(e) {
            *g = *g / (1.0 + e) * u;
        }
    }
    for (g, u) in gate.iter_mut().zip(up) {
        *g = silu(*g) * u;
    }
}

/// `gate = relu(gate)^2 * up`, element by element: ReLU, square, product, each rounded.
///
/// # Panics
/// When the lengths differ.
pub fn squared_reglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "lengths of a gate");
    compiled_for!(isa, squared_reglu_loop(gate: &mut [f32], up: &[f32]));
}

#[inline(always)]
fn squared_reglu_loop(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        let r = if is_positive(*g) { *g } else { 0.0 };
        *g = (r * r) * u;
    }
}

/// `x > 0`, by its bits. Compilers for ARM take a comparison with this choice for a maximum, whose instruction lets a
/// signaling NaN through, where the comparison is false.
#[inline(always)]
fn is_positive(x: f32) -> bool {
    x.to_bits().wrapping_sub(1) < f32::INFINITY.to_bits()
}

/// Table of [`geglu`]: GELU of every f16 value, by its bits, as f16.
pub fn gelu_table() -> &'static [u16] {
    // The entry behind the last one is there for loads of two.
    &GELU[..1 << 16]
}

/// `gate = gelu(gate) * up`, element by element.
///
/// GELU is looked up by the half-float value of its argument; at or below -10 the product is 0, at or
/// above 10 GELU is the identity.
///
/// # Panics
/// When the lengths differ.
pub fn geglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "lengths of a gate");
    let table: &[u16; GELU_ENTRIES] = &GELU;
    let done = native::geglu(isa, table, gate, up);
    for (g, u) in gate[done..].iter_mut().zip(&up[done..]) {
        *g = if *g <= -10.0 {
            0.0
        } else if *g >= 10.0 {
            *g * u
        } else {
            f16_to_f32(table[usize::from(f32_to_f16(*g))]) * u
        };
    }
}

/// The tanh form of GELU for every half float, rounded to half.
static GELU: LazyLock<Box<[u16; GELU_ENTRIES]>> = LazyLock::new(|| {
    const SQRT_2_OVER_PI: f32 = f32::from_bits(0x3f4c_422a);
    const CUBIC: f32 = 0.044715;
    let mut table = Box::new([0; GELU_ENTRIES]);
    for (entry, h) in table.iter_mut().zip(0..=u16::MAX) {
        let x = f16_to_f32(h);
        let y = 0.5 * x * (1.0 + tanhf(SQRT_2_OVER_PI * x * (1.0 + CUBIC * x * x)));
        *entry = f32_to_f16(y);
    }
    table
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, isas, same};

    /// All sorts of values: every exponent and sign, and those around the limits.
    fn values(random: &mut Random, n: usize) -> Vec<f32> {
        let special = [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
            10.0,
            -10.0,
            9.999_999,
            -9.999_999,
            1e-45,
            -88.0,
            -87.4,
            -104.0,
            89.0,
            133.5,
            -133.5,
            3.4e38,
        ];
        let mut one = |i: usize| match i % 4 {
            0 => f32::from_bits(random.bits() as u32),
            1 => special[random.below(special.len())],
            2 => random.float() * 200.0,
            _ => random.float() * 4.0,
        };
        (0..n).map(&mut one).collect()
    }

    fn check(what: &str, gated: fn(Isa, &mut [f32], &[f32]), definition: impl Fn(f32, f32) -> f32) {
        let mut random = Random(0x6A7E);
        for n in (0..50).chain([1000, 40_003]) {
            let (gate, up) = (values(&mut random, n), values(&mut random, n));
            for isa in isas() {
                let mut got = gate.clone();
                gated(isa, &mut got, &up);
                for ((&g, &u), y) in gate.iter().zip(&up).zip(got) {
                    let expected = definition(g, u);
                    assert!(same(y, expected), "{what} {isa} {g:e}, {u:e}: {y:e}, not {expected:e}");
                }
            }
        }
    }

    #[test]
    fn positive_is_what_compares_as_greater_than_zero() {
        // the ends of all classes: zeros, subnormal and normal numbers, infinities, signaling and quiet NaN
        let ends = [0, 1, 0x007F_FFFF, 0x0080_0000, 0x7F7F_FFFF, 0x7F80_0000];
        let nan = [0x7F80_0001, 0x7FBF_FFFF, 0x7FC0_0000, 0x7FFF_FFFF];
        for magnitude in ends.into_iter().chain(nan) {
            for bits in [magnitude, magnitude | 1 << 31] {
                let x = f32::from_bits(bits);
                assert_eq!(is_positive(x), x > 0.0, "{bits:08x}");
            }
        }
    }

    #[test]
    fn gates_give_the_bits_of_their_formulas() {
        check("swiglu", swiglu, |g, u| silu(g) * u);
        check("squared reglu", squared_reglu, |g, u| {
            // Not `if g > 0.0`: see `is_positive`.
            let r = if is_positive(g) { g } else { 0.0 };
            (r * r) * u
        });
        let gelu = |g: f32| {
            let x = f16_to_f32(f32_to_f16(g));
            let cubic = 1.0 + 0.044715 * x * x;
            let tanh = tanhf(f32::from_bits(0x3f4c_422a) * x * cubic);
            f16_to_f32(f32_to_f16(0.5 * x * (1.0 + tanh)))
        };
        check("geglu", geglu, |g, u| match g {
            _ if g <= -10.0 => 0.0,
            _ if g >= 10.0 => g * u,
            _ => gelu(g) * u,
        });
    }

    #[test]
    fn the_exponential_is_that_of_the_definition_for_every_exponent() {
        // SwiGLU by 1 shows every bit of the exponential that survives 1 + e.
        let steps = (0..=u32::MAX).step_by(4099).map(f32::from_bits);
        let x: Vec<f32> = steps.collect();
        let up = vec![1.0; x.len()];
        let expected: Vec<f32> = x.iter().map(|&x| silu(x)).collect();
        for isa in isas() {
            let mut got = x.clone();
            swiglu(isa, &mut got, &up);
            for ((x, a), b) in x.iter().zip(got).zip(&expected) {
                assert!(same(a, *b), "{isa} {x:e}: {a:e}, not {b:e}");
            }
        }
    }
}
