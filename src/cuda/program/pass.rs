//! A recorded forward pass.

use super::launches::Limits;
use super::memory::{Memory, Table, Value};
use super::operation::Operation;
use super::share::Share;
use super::staged::Staged;

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
    /// The values that a pass is given; none where that is tokens.
    pub(super) given: Vec<usize>,
    /// Parts of the memory of which a pass is told.
    pub(super) staged: Staged,
    /// The values that are read behind a pass; the first is that of which rows are taken for logits.
    pub(super) leaving: Vec<usize>,
    /// The first operation of the rows that were taken.
    pub(super) head: usize,
    /// The number of the logits' memory, where it makes any.
    pub(super) logits: Option<usize>,
    /// Numbers of a state.
    pub(super) state: usize,
    /// True if an operation behind the first reads the tokens.
    pub(super) reads_tokens: bool,
    /// The rows of matrices that it has, where devices share them.
    pub(super) shared: Option<Share>,
    /// Factors that passes are told.
    pub(super) factors: usize,
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

    /// Numbers that recurrent layers keep of a sequence; 0 without such layers.
    pub fn state(&self) -> usize {
        self.state
    }

    /// The memories of keys and of values, one layer after the other, and their heads.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize)> {
        self.operations.iter().filter_map(|operation| match operation {
            Operation::Store { cells, heads, .. } => Some((*cells, *heads)),
            _ => None,
        })
    }

    /// Factors that it is told before its passes.
    pub fn factors(&self) -> usize {
        self.factors
    }

    /// True if its passes have to be given tokens, whatever else they are given.
    pub fn reads_tokens(&self) -> bool {
        self.reads_tokens || self.given.is_empty()
    }

    /// Where a memory begins in that of the tokens, in a pass of `tokens` of them; `None` of a memory that stands by itself.
    pub(crate) fn staged_at(&self, memory: usize, tokens: usize) -> Option<usize> {
        self.staged.at(memory, tokens)
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

    /// The number of the memory that holds the logits, a row for each wanted token; `None` where it makes none.
    pub fn logits(&self) -> Option<usize> {
        self.logits
    }

    /// The memory and the columns of the values that a pass is given, rows of tokens; none where that is tokens.
    pub fn given(&self) -> impl ExactSizeIterator<Item = (usize, usize)> {
        self.given.iter().map(|&value| self.place(value))
    }

    /// The memory and the columns of the values that a pass leaves, a row for each token: that of which logits are made,
    /// or those that another part of the model reads.
    pub fn leaving(&self) -> impl ExactSizeIterator<Item = (usize, usize)> {
        self.leaving.iter().map(|&value| self.place(value))
    }

    fn place(&self, value: usize) -> (usize, usize) {
        (self.values[value].memory, self.values[value].columns)
    }
}
