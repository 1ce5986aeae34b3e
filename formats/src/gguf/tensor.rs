//! A row of the tensor table.

use crate::types::TypeId;

/// One row of the tensor table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorInfo {
    /// Name, unique in the model.
    pub name: String,
    /// Extents, fastest first (`ne` in ggml): a matrix is `[columns, rows]`. 1 to 4 entries.
    pub shape: Vec<u64>,
    /// Tensor type; may be unknown.
    pub ty: TypeId,
    /// Start, from the beginning of the data section.
    pub offset: u64,
    /// Size in bytes without padding; for a type of unknown size, up to the next tensor.
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of weights.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |n, &d| n.saturating_mul(d))
    }

    /// Weights per row.
    pub fn columns(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Rows, over all outer dimensions.
    pub fn rows(&self) -> u64 {
        self.shape.iter().skip(1).fold(1, |n, &d| n.saturating_mul(d))
    }
}
