//! Encodings of f16 values in the words of the KV cache and of packed weights.
//!
//! A subnormal half float would be widened to a subnormal `f64`, and on Intel's processors a multiply-add with one
//! takes some 150 cycles. One in fifty vectors of eight ordinary weights holds such a number. So f16 values are stored
//! *normalized* where all of them are small enough:
//!
//! ```text
//! bit 15      sign
//! bits 10-14  e, 0 for zero alone; the others mean 2^(e - 25), ten powers of two less than in a half float
//! bits 0-9    mantissa below its leading one
//! ```
//!
//! Every number below 128 has its place, since 2^-24 is the least half float. What is larger stands as the plain half
//! float, which after the same widening counts 2^-10 of its value.

use trine_formats::types::num::f16_to_f32;

use crate::Isa;
use crate::proof::compiled_for;

/// Factor by which a plain f16 comes out too small where a normalized one comes out right.
pub const PLAIN: f32 = 1024.0;

/// Magnitude from which on f16 values are stored plain: half of the normalized range, so that normalized values are
/// numbers as f16 too.
const LARGE: f32 = 63.5;
/// From this magnitude on a value is rounded to an infinity.
const INFINITE: f32 = 65520.0;

/// Binary places by which the exponents of the two forms differ, at their place in the half float.
const BIAS: u16 = 10 << 10;
/// The same between the exponent of an `f32`, ten of its mantissa's bits kept, and a normalized one.
const FROM_F32: u32 = (127 - 25) << 10;

/// Encoding of f16 values that are stored together, in the order of the magnitudes that they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum F16Encoding {
    /// All are below 64 and normalized.
    Normalized,
    /// All are numbers, as half floats.
    Plain,
    /// Half floats, among them infinities or NaN.
    Special,
}

impl F16Encoding {
    /// Returns the encoding that values need once they are rounded to f16. Values just below the limit may get the
    /// greater one.
    pub fn of(isa: Isa, x: &[f32]) -> F16Encoding {
        F16Encoding::of_magnitude(compiled_for!(isa, greatest(x: &[f32]) -> u32))
    }

    /// Returns the encoding that f16 values need.
    pub fn of_halves(halves: impl Iterator<Item = u16>) -> F16Encoding {
        let greatest = halves.map(|half| half & 0x7FFF).max();
        F16Encoding::of_magnitude(f16_to_f32(greatest.unwrap_or(0)).to_bits())
    }

    fn of_magnitude(bits: u32) -> F16Encoding {
        if bits < LARGE.to_bits() {
            F16Encoding::Normalized
        } else if bits < INFINITE.to_bits() {
            F16Encoding::Plain
        } else {
            F16Encoding::Special
        }
    }

    /// The encoding of that number.
    pub fn from_number(number: u8) -> F16Encoding {
        match number {
            0 => F16Encoding::Normalized,
            1 => F16Encoding::Plain,
            _ => F16Encoding::Special,
        }
    }

    /// The value of a stored half.
    #[inline]
    pub fn value(self, stored: u16) -> f32 {
        f16_to_f32(match self {
            F16Encoding::Normalized => denormalized(stored),
            F16Encoding::Plain | F16Encoding::Special => stored,
        })
    }
}

/// The bits of the greatest magnitude: magnitudes are in the order of their bits, NaN above all numbers.
#[inline(always)]
fn greatest(x: &[f32]) -> u32 {
    let greatest = x.iter().fold(0, |greatest, x| {
        let bits = x.abs().to_bits().cast_signed();
        if bits > greatest { bits } else { greatest }
    });
    greatest.cast_unsigned()
}

/// A half float below 128, normalized.
#[inline]
pub fn normalized(half: u16) -> u16 {
    let magnitude = half & 0x7FFF;
    // A subnormal one is this whole number of its unit, and conversion finds the leading one.
    let whole = f32::from(magnitude & 0x3FF).to_bits() >> 13;
    let subnormal = whole.wrapping_sub((127 - 1) << 10) as u16;
    let stored = match magnitude {
        0 => 0,
        1..0x400 => subnormal,
        _ => magnitude.wrapping_add(BIAS),
    };
    half & 0x8000 | stored & 0x7FFF
}

/// The half float that was normalized; of other bits, some number.
#[inline]
pub fn denormalized(stored: u16) -> u16 {
    let magnitude = stored & 0x7FFF;
    let half = match magnitude >> 10 {
        0 => 0,
        e @ 1..=10 => (magnitude & 0x3FF | 0x400) >> (11 - e),
        _ => magnitude - BIAS,
    };
    stored & 0x8000 | half
}

/// The same as [`normalized`] where an `f32` that is a half float is at hand.
#[inline]
pub fn normalized_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = (bits & 0x7FFF_FFFF) >> 13;
    let stored = if magnitude == 0 { 0 } else { magnitude.wrapping_sub(FROM_F32) };
    (bits >> 16) as u16 & 0x8000 | stored as u16 & 0x7FFF
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_formats::types::num::f32_to_f16;

    use crate::testing::isas;

    #[test]
    fn every_small_half_float_has_its_normalized_form() {
        for half in 0..=u16::MAX {
            let value = f16_to_f32(half);
            if value.abs() < 128.0 {
                let stored = normalized(half);
                let e = i32::from(stored >> 10 & 31);
                assert_eq!(stored, normalized_f32(value), "{half:04x}");
                assert_eq!(denormalized(stored), half, "{half:04x}");
                assert_eq!(F16Encoding::Normalized.value(stored).to_bits(), value.to_bits());
                let mantissa = 1.0 + f32::from(stored & 0x3FF) / 1024.0;
                let expected = if e == 0 { 0.0 } else { mantissa * crate::testing::power(e - 25) as f32 };
                assert_eq!(value.abs(), expected, "{half:04x}");
            }
        }
        // What was not normalized must not become an infinity or a NaN, whatever it is.
        assert!((0..=u16::MAX).all(|bits| !super::super::is_special(denormalized(bits))));
    }

    #[test]
    fn the_form_holds_what_is_rounded() {
        let isas: Vec<Isa> = isas().collect();
        // Among more zeros than a vector has lanes, at any place.
        let of = |i: usize, x: f32| {
            let mut values = [0.0; 37];
            values[i % 37] = x;
            let form = F16Encoding::of(isas[0], &values);
            assert!(isas.iter().all(|&isa| F16Encoding::of(isa, &values) == form));
            form
        };
        for half in 0..=u16::MAX {
            let value = f16_to_f32(half);
            let form = F16Encoding::of_halves([half, 0].into_iter());
            assert_eq!(form == F16Encoding::Special, !value.is_finite(), "{half:04x}");
            assert!(form != F16Encoding::Normalized || value.abs() < 64.0, "{half:04x}");
            assert!(form != F16Encoding::Plain || value.abs() > 63.0, "{half:04x}");
            assert_eq!(of(half.into(), value), form);
            for x in [value.next_up(), value.next_down(), 63.999, 65519.99, 65520.0] {
                let (form, rounded) = (of(half.into(), x), f16_to_f32(f32_to_f16(x)));
                assert_eq!(form == F16Encoding::Special, !rounded.is_finite(), "{x:e}");
                assert!(form != F16Encoding::Normalized || rounded.abs() < 64.0, "{x:e}");
            }
        }
        for form in [F16Encoding::Normalized, F16Encoding::Plain, F16Encoding::Special] {
            assert_eq!(F16Encoding::from_number(form as u8), form);
        }
    }
}
