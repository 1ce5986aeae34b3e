//! Types whose products are sums of integers, in one form: levels of weights in groups with integer scales, the floats of
//! their blocks, and the formula that makes a float of them.
//!
//! Every [`dot_ref`](super::TypeInfo::dot_ref) of these types multiplies levels by quants, adds the products of a group,
//! an exact integer, and has one of a few [`Sums`] for the rest. So whoever knows the form and the formulas, such as the
//! kernels of a GPU, needs no knowledge of where the bits of a type lie. A test evaluates the form and finds the bits of
//! `dot_ref`.

use super::TypeInfo;
use super::num::f16_at;

/// The most weights of a block.
pub const WIDEST: usize = 256;

/// The levels that weights of a type may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coding {
    /// So many integers from the lowest on.
    Even {
        /// The lowest level.
        lowest: i8,
        /// How many levels there are.
        count: u8,
    },
    /// The levels of a table; some may stand there twice.
    Table(&'static [i8]),
    /// Any byte.
    Bytes,
}

impl Coding {
    /// The number of the first level that is `level`; of [`Coding::Bytes`] its bits.
    pub fn code(self, level: i8) -> u8 {
        match self {
            Coding::Even { lowest, .. } => level.wrapping_sub(lowest) as u8,
            Coding::Table(levels) => levels.iter().position(|l| *l == level).unwrap_or(0) as u8,
            Coding::Bytes => level as u8,
        }
    }
}

/// How integers become the product of a row. `isum` is the sum of level times quant of a group, `d` a float of the
/// weights, `dx` the scale of a block of activations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sums {
    /// With Q8_0, for every group: `acc += (d * dx) * isum`.
    Blocks,
    /// With Q8_1, for every group: `acc += (d * dx) * isum + minimum * sum`.
    Shifted,
    /// With Q8_0, for every block: `t += dx * isum` from zero over its groups, then `acc += d * t`.
    Nested,
    /// With Q8_K: `acc += (d * dx) * (all * unit)`, `all` the sum of `scale * isum` of a block; at the end `last * acc`.
    Whole {
        /// The factor of a block's sum.
        unit: f32,
        /// The factor of the row's.
        last: f32,
    },
    /// With Q8_K, for every group: `acc += ((d * dx) * scale) * isum`.
    Groups,
    /// With Q8_K: `acc += (dx * d) * all - (dx * minimum) * minima`, `minima` the sum of a group's minimum times its quants.
    Minima,
    /// With Q8_K: eight chains, chain `l` of the levels whose column is `l` modulo 8: `chain += (d * dx) * all`. They are
    /// added to zero in order.
    Chains,
    /// The same, added to `acc -= (minimum * dx) * minima`.
    ChainsAndMinima,
}

impl Sums {
    /// The sums of blocks of 256 as they are.
    pub(super) const WHOLE: Sums = Sums::Whole { unit: 1.0, last: 1.0 };
}

/// A block of weights.
#[derive(Clone, Debug)]
pub struct Integers {
    /// Levels of the weights.
    pub levels: [i8; WIDEST],
    /// Integer scales of the groups; 1 where there are none.
    pub scales: [i8; 16],
    /// Integer minima of the groups.
    pub minima: [i8; 16],
    /// The float of the block, or, where it has several, one for each group.
    pub d: [f32; 4],
    /// The unit of minima, or the minimum itself.
    pub minimum: f32,
}

impl Integers {
    /// Zeros.
    const fn new() -> Integers {
        Integers { levels: [0; WIDEST], scales: [1; 16], minima: [0; 16], d: [0.0; 4], minimum: 0.0 }
    }

    /// Sets the first levels, and the float of the block.
    pub(super) fn set<T: Copy + TryInto<i8>>(&mut self, levels: &[T], d: f32) {
        for (to, level) in self.levels.iter_mut().zip(levels) {
            *to = (*level).try_into().unwrap_or(0);
        }
        self.d = [d; 4];
    }

    /// Sets the scales of the groups.
    pub(super) fn set_scales<T: Copy + TryInto<i8>>(&mut self, scales: &[T]) {
        for (to, scale) in self.scales.iter_mut().zip(scales) {
            *to = (*scale).try_into().unwrap_or(0);
        }
    }
}

/// A type as integers.
#[derive(Clone, Copy, Debug)]
pub struct IntegerForm {
    /// Weights of a group.
    pub group: usize,
    /// The levels that there are.
    pub coding: Coding,
    /// How they become a product.
    pub sums: Sums,
    /// Takes a block apart, given the scale of its row (1 where blocks have scales).
    pub(super) read: fn(of_row: f32, block: &[u8], to: &mut Integers),
}

impl IntegerForm {
    /// A form with groups of so many weights.
    pub(super) const fn new(
        group: usize,
        coding: Coding,
        sums: Sums,
        read: fn(f32, &[u8], &mut Integers),
    ) -> IntegerForm {
        IntegerForm { group, coding, sums, read }
    }

    /// Calls `with` with the number of each block of a row and the block. `info` is the type's entry.
    pub fn each_block(&self, info: &TypeInfo, row: &[u8], mut with: impl FnMut(usize, &Integers)) {
        let (head, blocks) = row.split_at_checked(info.head).unwrap_or_default();
        let of_row = match *head {
            [a, b, c, d, ..] => f32::from_le_bytes([a, b, c, d]),
            [_, _] => f16_at(head, 0),
            _ => 1.0,
        };
        let mut block = Integers::new();
        for (number, bytes) in blocks.chunks_exact(info.bytes).enumerate() {
            (self.read)(of_row, bytes, &mut block);
            with(number, &block);
        }
    }
}

#[cfg(test)]
mod tests;
