//! The unit in which half floats are laid out for their sums: what [`crate::simd::Doubles`] read at once, and what
//! [`crate::halves`] arranges.

/// Lanes of a line.
pub const LINE: usize = 8;

/// Eight lanes of four steps.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Line(pub [u64; LINE]);
