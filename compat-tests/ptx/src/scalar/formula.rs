//! Formulas of instructions.

/// Lanes of a warp.
pub(in super::super) const LANES: usize = 32;
/// A value for each lane of a warp.
pub(in super::super) type Lanes = [u64; LANES];

/// The numbers of the lanes in a mask.
pub(in super::super) fn each(mask: u32) -> Each {
    Each(mask)
}

/// Those that are still to come.
pub(in super::super) struct Each(u32);

impl Iterator for Each {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    }
}

/// The formula of an instruction: up to four operands to a result, for all lanes at once.
pub(in super::super) type Scalar = fn([&Lanes; 4], &mut Lanes);

/// A formula of one operand.
macro_rules! one {
    (|$a:ident: $ta:ty| $result:expr) => {
        Some((1, |[a, ..]: [&Lanes; 4], to: &mut Lanes| {
            for (to, a) in to.iter_mut().zip(a) {
                let $a = *a as $ta;
                *to = u64::from($result);
            }
        }))
    };
}

/// A formula of two operands.
macro_rules! two {
    (|$a:ident: $ta:ty, $b:ident: $tb:ty| $result:expr) => {
        Some((2, |[a, b, ..]: [&Lanes; 4], to: &mut Lanes| {
            for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
                let ($a, $b) = (*a as $ta, *b as $tb);
                *to = u64::from($result);
            }
        }))
    };
}

/// A formula of three operands.
macro_rules! three {
    (|$a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty| $result:expr) => {
        Some((3, |[a, b, c, _]: [&Lanes; 4], to: &mut Lanes| {
            for (((to, a), b), c) in to.iter_mut().zip(a).zip(b).zip(c) {
                let ($a, $b, $c) = (*a as $ta, *b as $tb, *c as $tc);
                *to = u64::from($result);
            }
        }))
    };
}

/// A formula of four operands.
macro_rules! four {
    (|$a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty, $d:ident: $td:ty| $result:expr) => {
        Some((4, |[a, b, c, d]: [&Lanes; 4], to: &mut Lanes| {
            for ((((to, a), b), c), d) in to.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                let ($a, $b, $c, $d) = (*a as $ta, *b as $tb, *c as $tc, *d as $td);
                *to = u64::from($result);
            }
        }))
    };
}

pub(super) use {four, one, three, two};
