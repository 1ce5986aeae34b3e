//! Input of a GPU that runs the last blocks of a model.

use crate::program::RopeKind;

/// A pass behind the blocks that the processor runs, for a GPU.
pub struct Behind<'a> {
    /// The tokens of its rows.
    pub tokens: &'a [u32],
    /// Residual stream behind those blocks, `[tokens][n_embd]`.
    pub rows: &'a [f32],
    /// Bits of any-precision weights; any number where there are none.
    pub bits: u8,
    /// Cosine and sine of every pair of a position embedding, at a position.
    pub angles: &'a dyn Fn(RopeKind, usize) -> Vec<(f32, f32)>,
}
