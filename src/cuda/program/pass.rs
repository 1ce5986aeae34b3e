//! A recorded forward pass.

use super::launches::Limits;
use super::memory::{Memory, Table, Value};
use super::operation::Operation;

/// A forward pass.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) limits: Limits,
    pub(super) vocabulary: usize,
    pub(super) memories: Vec<Memory>,
    pub(super) values: Vec<Value>,
    pub(super) operations: Vec<Operation>,
    /// Memory and pairs of the tables of each kind of RoPE.
    pub(super) rotations: Vec<(usize, usize)>,
    /// The value that a pass is given, unless that is tokens.
    pub(super) given: Option<usize>,
    /// The value of which rows are taken for logits.
    pub(super) stream: usize,
    /// The first operation of the rows that were taken.
    pub(super) head: usize,
    pub(super) logits: usize,
}

impl Program {
    /// Sizes for which it has memory.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Logits of a token, and identifiers that tokens may have.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// All memory that it needs, by number.
    pub fn memories(&self) -> &[Memory] {
        &self.memories
    }

    /// The same, summed up by kind.
    pub fn table(&self) -> Table {
        Table::of(&self.memories)
    }

    /// For each kind of RoPE the number of its memory, which holds cosine and sine of every pair of every token, and
    /// the pairs.
    pub fn rotations(&self) -> &[(usize, usize)] {
        &self.rotations
    }

    /// The number of the memory that holds the logits, a row for each wanted token.
    pub fn logits(&self) -> usize {
        self.logits
    }

    /// The memory and the columns of the rows that a pass is given; `None` where that is tokens.
    pub fn given(&self) -> Option<(usize, usize)> {
        self.given.map(|value| self.place(value))
    }

    /// The memory and the columns of the rows that a pass leaves, one for each token, of which logits are made.
    pub fn stream(&self) -> (usize, usize) {
        self.place(self.stream)
    }

    fn place(&self, value: usize) -> (usize, usize) {
        (self.values[value].memory, self.values[value].columns)
    }
}
