//! Instructions that each lane computes by itself.
//!
//! Registers hold bits, filled up with zeros to 64. A formula takes as much of an operand as its type has, and gives
//! a result that is filled up in the same way.

mod convert;
mod float;
mod integer;

/// The formula of an instruction: up to four operands to a result.
pub(super) type Scalar = fn([u64; 4]) -> u64;

/// The number of operands and the formula of an opcode, or `None` when the emulator has none.
pub(super) fn find(opcode: &str) -> Option<(usize, Scalar)> {
    integer::find(opcode).or_else(|| float::find(opcode)).or_else(|| convert::find(opcode))
}

/// A formula of one operand.
macro_rules! one {
    (|$a:ident: $ta:ty| $result:expr) => {
        Some((1, |[a, ..]: [u64; 4]| {
            let $a = a as $ta;
            u64::from($result)
        }))
    };
}

/// A formula of two operands.
macro_rules! two {
    (|$a:ident: $ta:ty, $b:ident: $tb:ty| $result:expr) => {
        Some((2, |[a, b, ..]: [u64; 4]| {
            let ($a, $b) = (a as $ta, b as $tb);
            u64::from($result)
        }))
    };
}

/// A formula of three operands.
macro_rules! three {
    (|$a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty| $result:expr) => {
        Some((3, |[a, b, c, _]: [u64; 4]| {
            let ($a, $b, $c) = (a as $ta, b as $tb, c as $tc);
            u64::from($result)
        }))
    };
}

use {one, three, two};
