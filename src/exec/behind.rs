//! Input of GPUs that run the last blocks of a model.

use crate::program::{RopeKind, Scales, Value};

/// A pass behind the blocks that the processor runs, for GPUs.
pub struct Behind<'a> {
    /// The tokens of its rows.
    pub tokens: &'a [u32],
    /// The values behind those blocks that later ones read, `[tokens][columns]` each: the residual stream, and others.
    pub rows: &'a [(Value, &'a [f32])],
    /// Bits of any-precision weights; any number where there are none.
    pub bits: u8,
    /// Factors of the adapters; `None`: those with which they were loaded.
    pub adapters: Option<&'a Scales>,
    /// Cosine and sine of every pair of a position embedding, at a position.
    pub angles: &'a dyn Fn(RopeKind, usize) -> Vec<(f32, f32)>,
}
