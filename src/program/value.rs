//! The values and matrices of a program.

use trine_formats::types::TypeId;

/// A value of a program, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value(pub(crate) usize);

/// A matrix of a program, by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixId(pub(crate) usize);

/// The rows of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowCount {
    /// One for each token of a pass.
    Tokens,
    /// One for each token whose logits are wanted.
    Wanted,
    /// This many for each token: one for each of its experts, grouped by expert.
    Experts(usize),
}

impl RowCount {
    /// The number of rows in a pass of `tokens` tokens, or of `tokens` wanted ones.
    pub fn count(self, tokens: usize) -> usize {
        match self {
            RowCount::Tokens | RowCount::Wanted => tokens,
            RowCount::Experts(used) => tokens * used,
        }
    }
}

/// A value's name and size.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The value's name: that of the tensor that makes it, or of what it is.
    pub name: String,
    /// Its rows.
    pub rows: RowCount,
    /// Floats of a row; of a choice of experts the experts of a token.
    pub columns: usize,
}

/// A matrix that an operation multiplies by or takes rows of.
#[derive(Clone, Debug)]
pub struct MatrixInfo {
    /// Its tensor in the model's file.
    pub tensor: String,
    /// Its type.
    pub ty: TypeId,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
    /// Its first row among those of the tensor.
    pub first_row: usize,
}
