//! Where the bits of each row of half floats stand: what decides how a group of rows is stored and multiplied.
//!
//! ```text
//! byte r = 0..32:        place of the lowest bit set in row r
//! byte 32 + r:           place behind the highest; 0 for a row of zeros
//! ```
//!
//! Places count from 2^-24, the lowest bit of all half floats, to 2^15, the highest.

use crate::shared::halves::{F16Encoding, LANES, STEPS};

/// Bytes of the spans of a group.
pub(crate) const HEAD: usize = 2 * LANES;

/// Place behind the bits of numbers below 64.
const NORMALIZED: u8 = 24 + 6;

/// Lowest and highest bit of the numbers of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub low: u8,
    pub high: u8,
}

impl Span {
    /// The span of f16 that are numbers.
    #[inline(always)]
    pub fn of(halves: &[[u8; 2]]) -> Span {
        let mut bits = 0;
        for half in halves {
            let half = u32::from(u16::from_le_bytes(*half));
            let (exponent, mantissa) = (half >> 10 & 31, half & 0x3FF);
            let leading = u32::from(exponent > 0) << 10;
            bits |= u64::from(mantissa | leading) << exponent.max(1);
        }
        // One place more than there is, since exponents 0 and 1 mean the same.
        Span::of_bits(bits >> 1)
    }

    /// The span of numbers of which `bits` is the bitwise OR of the magnitudes, read as whole numbers.
    pub fn of_bits(bits: u64) -> Span {
        match bits {
            0 => Span { low: 0, high: 0 },
            bits => Span { low: bits.trailing_zeros() as u8, high: (u64::BITS - bits.leading_zeros()) as u8 },
        }
    }
}

/// Stores the spans of rows; those that are not there are as the last. Inlined always, so that the rows are read by the
/// instructions of the caller.
#[inline(always)]
pub(crate) fn store(head: &mut [u8], rows: impl Iterator<Item = Span>) {
    let mut last = Span { low: 0, high: 0 };
    let mut rows = rows;
    for r in 0..LANES {
        last = rows.next().unwrap_or(last);
        (head[r], head[LANES + r]) = (last.low, last.high);
    }
}

/// The span of row `r`.
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) fn load(head: &[u8], r: usize) -> Span {
    Span { low: head[r], high: head[LANES + r] }
}

/// In which form the words of a group stand.
pub(crate) fn form(head: &[u8]) -> F16Encoding {
    match head[LANES..HEAD].iter().all(|&high| high <= NORMALIZED) {
        true => F16Encoding::Normalized,
        false => F16Encoding::Plain,
    }
}

const _: () = assert!(HEAD == 64 && STEPS == 4);

#[cfg(test)]
mod tests {
    use super::*;
    use trine_formats::types::num::f16_to_f32;

    #[test]
    fn a_span_is_from_the_lowest_bit_to_the_highest() {
        for half in (0..=u16::MAX).filter(|half| !crate::shared::halves::is_special(*half)) {
            let whole = (f64::from(f16_to_f32(half)).abs() * crate::testing::power(24)) as u64;
            let span = Span::of(&[[0; 2], half.to_le_bytes(), [0, 0x80]]);
            if whole == 0 {
                assert_eq!(span, Span { low: 0, high: 0 });
            } else {
                assert!(whole >> span.low & 1 == 1 && whole >> span.high == 0);
                assert!(whole << (64 - span.low) == 0 || span.low == 0);
                assert!(whole >> (span.high - 1) == 1);
            }
            let mut head = [0; HEAD];
            store(&mut head, [span].into_iter());
            assert!((0..LANES).all(|r| load(&head, r) == span));
            assert_eq!(form(&head) == F16Encoding::Normalized, whole < 64 << 24);
        }
    }
}
