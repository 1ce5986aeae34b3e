//! A model's forward pass as launches: operations are recorded once, and say for any number of tokens which kernel runs
//! on which grid with which arguments.
//!
//! A [`Recorder`] records a model's forward pass, operation by operation; it knows no architecture. The result, a
//! [`Program`], is data: the memory that it needs, with its size for the [`Limits`] it was made for, and the launches
//! of a pass. Nothing is packed or allocated before the sizes are known, so a model that is too large is refused by its
//! [table](Program::table). [`crate::run`] runs a program on a [device](crate::device).

mod calls;
mod calls_experts;
mod matrix;
mod memory;
mod operation;
mod place;
mod record;
mod record_experts;

use crate::pack::PackError;
use crate::plan::{Launch, PlanError};

pub use matrix::{Matrix, Weights, embeds};
pub use memory::{Kind, Memory, Table};
pub use operation::{Claim, Gate, Gating};
pub use record::{Heads, Recorder, Rotation, Span};
pub use record_experts::{Choosing, Chosen};

use memory::Value;
use operation::Operation;

/// Sizes for which a program has memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Tokens of a pass, and so its sequences.
    pub tokens: usize,
    /// Rows of logits that are computed together.
    pub wanted: usize,
    /// Positions of a sequence.
    pub context: usize,
    /// Positions of a page of keys and values, a power of two.
    pub page: usize,
    /// Pages of all sequences.
    pub pages: usize,
}

impl Limits {
    /// Pages of a sequence.
    pub fn row(&self) -> usize {
        self.context.div_ceil(self.page.max(1))
    }
}

/// Why there is no program for a model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProgramError {
    /// No kernel does what the model needs.
    #[error("the GPU has no kernel for {0}")]
    Missing(String),
    /// A size that no buffer or grid has.
    #[error("{0} is more than a GPU takes; lower the context, the sequences or the tokens of a pass")]
    TooLarge(String),
    /// A product without a plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A matrix that cannot be laid out.
    #[error("{name}: {why}")]
    Pack {
        /// The matrix.
        name: String,
        /// Why not.
        why: PackError,
    },
}

/// An argument of a call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operand {
    /// Byte `.1` of memory number `.0`.
    Memory(usize, usize),
    /// 32 bits.
    U32(u32),
    /// A number in single precision.
    F32(f32),
}

/// A kernel, its grid and its arguments.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The kernel and its grid.
    pub launch: Launch,
    /// Its arguments in order.
    pub operands: Vec<Operand>,
}

/// The memory with a fixed number that every program has.
pub(crate) mod fixed {
    /// Identifiers of the tokens: u32 each.
    pub const TOKENS: usize = 0;
    /// Sequence and position of the tokens: two u32 each.
    pub const PLACES: usize = 1;
    /// Where their keys and values go, the page and the cell of it: two u32 each.
    pub const CELLS: usize = 2;
    /// The pages of the sequences: a row of u32 for each.
    pub const TABLES: usize = 3;
    /// Numbers of the tokens whose logits are wanted: u32 each.
    pub const WANTED: usize = 4;
    /// Scratch memory that one launch writes for the next or for itself.
    pub const WORK: usize = 5;
    /// Counters by which a slice of a product knows that it is the last: u32 each.
    pub const TICKETS: usize = 6;
}

/// A forward pass.
#[derive(Clone, Debug)]
pub struct Program {
    limits: Limits,
    vocabulary: usize,
    memories: Vec<Memory>,
    values: Vec<Value>,
    operations: Vec<Operation>,
    /// Memory and pairs of the tables of each kind of RoPE.
    rotations: Vec<(usize, usize)>,
    /// The value that a pass is given, unless that is tokens.
    given: Option<usize>,
    /// The value of which rows are taken for logits.
    stream: usize,
    /// The first operation of the rows that were taken.
    head: usize,
    logits: usize,
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

    /// The launches of a pass over `tokens` tokens.
    ///
    /// # Errors
    /// A product without a plan; more tokens than the limits say.
    pub fn body(&self, tokens: usize) -> Result<Vec<Call>, ProgramError> {
        calls::of(self, &self.operations[..self.head], tokens, 1)
    }

    /// The launches that make logits of `wanted` rows of a pass.
    ///
    /// # Errors
    /// A product without a plan; more rows than the limits say.
    pub fn logits_of(&self, wanted: usize) -> Result<Vec<Call>, ProgramError> {
        calls::of(self, &self.operations[self.head..], 1, wanted)
    }
}

#[cfg(test)]
mod tests;
