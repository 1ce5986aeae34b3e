//! The memory of a program.

use std::fmt;

use super::{Limits, ProgramError};
use crate::fragment::COLUMNS;
use crate::pack::activations::GROUP;
use crate::plan::eights_of_chosen;

/// Use of a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Matrices, gains and biases, which no kernel writes.
    Weights,
    /// Keys and values.
    Cells,
    /// States of recurrent layers.
    States,
    /// Values that one operation writes and later ones read.
    Values,
    /// Inputs of a step: tokens, their places, tables of angles.
    Inputs,
    /// Tickets: zeros at first and after every launch.
    Zeros,
}

/// A range of a device's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Its use.
    pub kind: Kind,
    /// Its size.
    pub bytes: usize,
}

/// The bytes that a program needs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Table {
    /// Matrices, gains and biases.
    pub weights: u64,
    /// Keys and values.
    pub cells: u64,
    /// States of recurrent layers.
    pub states: u64,
    /// Values between operations, and inputs of a step.
    pub values: u64,
}

impl Table {
    pub(super) fn of(memories: &[Memory]) -> Table {
        let sum = |kinds: &[Kind]| {
            let of_kind = memories.iter().filter(|m| kinds.contains(&m.kind));
            of_kind.fold(0u64, |sum, m| sum.saturating_add(m.bytes as u64))
        };
        Table {
            weights: sum(&[Kind::Weights]),
            cells: sum(&[Kind::Cells]),
            states: sum(&[Kind::States]),
            values: sum(&[Kind::Values, Kind::Inputs, Kind::Zeros]),
        }
    }

    /// Sum of weights, cells, states and values, bytes.
    pub fn total(&self) -> u64 {
        let parts = [self.cells, self.states, self.values];
        parts.iter().fold(self.weights, |sum, &part| sum.saturating_add(part))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(f, "weights {:.1} MiB, keys and values {:.1} MiB, ", mib(self.weights), mib(self.cells))?;
        if self.states > 0 {
            write!(f, "states {:.1} MiB, ", mib(self.states))?;
        }
        write!(f, "activations {:.1} MiB", mib(self.values))
    }
}

/// The rows of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowCount {
    /// One row for each token.
    Tokens,
    /// One row for each token whose logits are wanted.
    Wanted,
    /// `n` for each token: one for each of its experts.
    Chosen(usize),
    /// Upper bound of the blocks of eight rows, each of one expert: `experts` in all, `used` per token.
    Eights { experts: usize, used: usize },
}

impl RowCount {
    /// Number of rows.
    pub fn count(self, tokens: usize, wanted: usize) -> usize {
        match self {
            RowCount::Tokens => tokens,
            RowCount::Wanted => wanted,
            RowCount::Chosen(used) => tokens.saturating_mul(used),
            RowCount::Eights { experts, used } => eights_of_chosen(experts, tokens.saturating_mul(used)),
        }
    }
}

/// How the activations of a product are quantized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quants {
    Q8K,
    /// Q8_K whose columns stand in the order of the eight chains of a definition.
    Q8KChains,
    Q8_0,
    /// Q8_0 with scaled sums, for weights with minima.
    Q8_1,
    /// Bytes under one scale, which has a floor or none.
    Bytes {
        floored: bool,
    },
    /// Bytes in blocks of 64 columns, for any-precision weights.
    Planes,
    /// Half floats, in rows of whole chunks of eight.
    Halves,
    /// The same with brain floats.
    Brains,
}

impl Quants {
    /// Scales of a token.
    pub fn scales(self, columns: usize) -> usize {
        match self {
            Quants::Q8K | Quants::Q8KChains => columns / 256,
            Quants::Q8_0 | Quants::Q8_1 => columns / 32,
            Quants::Bytes { .. } => 1,
            Quants::Planes => columns.div_ceil(64),
            Quants::Halves | Quants::Brains => 0,
        }
    }
}

/// A value that one operation writes and later ones read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub rows: RowCount,
    pub columns: usize,
    /// Floats where there are none.
    pub quants: Option<Quants>,
    /// The number of its memory, once that is decided.
    pub memory: usize,
}

/// Ranges of one memory begin at multiples of this.
const ALIGNMENT: usize = 256;

impl Value {
    /// Where the scales and the sums of quants begin, and where the value ends.
    pub fn parts(&self, limits: &Limits) -> Result<[usize; 3], ProgramError> {
        let rows = self.rows.count(limits.tokens, limits.wanted);
        let size = |factors: [usize; 3]| size(&factors, "an activation");
        let Some(quants) = self.quants else {
            return Ok([size([rows, self.columns, 4])?; 3]);
        };
        if matches!(quants, Quants::Halves | Quants::Brains) {
            return Ok([size([rows, self.columns.div_ceil(8), 16])?; 3]);
        }
        let padded = rows.div_ceil(COLUMNS) * COLUMNS;
        let codes = size([padded, self.columns.div_ceil(GROUP), GROUP])?;
        let scales = size([padded, quants.scales(self.columns), 4])?.next_multiple_of(ALIGNMENT);
        Ok([codes, codes + scales, codes + 2 * scales])
    }
}

/// A product of sizes that a buffer can have and kernels can count.
pub(super) fn size(factors: &[usize], what: &str) -> Result<usize, ProgramError> {
    let product = factors.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
    product
        .filter(|&n| n <= isize::MAX as usize / 8)
        .ok_or_else(|| ProgramError::TooLarge(format!("{what} of {factors:?} bytes")))
}
