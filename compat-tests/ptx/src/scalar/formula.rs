//! Formulas of instructions.

/// The formula of an instruction: up to four operands to a result.
pub(in super::super) type Scalar = fn([u64; 4]) -> u64;

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

pub(super) use {one, three, two};
