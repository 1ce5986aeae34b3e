//! Products with widely linear matrices: the kernels of [`trine_formats::widely`]'s definitions.
//!
//! In single precision every weight adds an activation to an accumulator or takes it away: the inner loops select,
//! change signs and add, and do not multiply; only the few sums of a row are multiplied by scales. Vector lanes are the
//! sixteen columns of a chunk, as in the definition, sixteen rows ([`tables`]), or for many tokens the tokens
//! ([`batch`]). With 8-bit activations lanes are sixteen rows, and what is summed is integers.
//!
//! Weights stand in one of four forms ([`CodeLayout`]): the words of the file, the same bits sorted into planes, or sixteen
//! rows interleaved, by columns or by lanes. A unit, one row or sixteen, is asked for at a time, with all tokens.

pub(crate) mod act;
pub mod batch;
mod form;
mod path;
pub(crate) mod scalar;
pub mod tables;
mod unit;

pub use form::{CodeLayout, ROWS};
pub use path::Path;
pub use unit::{Sums, Unit};

#[cfg(target_arch = "x86_64")]
pub(crate) use unit::{RowSums, combine_rows, row_scales};
pub(crate) use unit::{blocks_of, by_blocks};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use act::Block;
#[cfg(target_arch = "x86_64")]
pub(crate) use act::block;
pub(crate) use form::{BLOCK_BYTES, BLOCK_CHUNKS, CHUNK_BYTES, lane_words};

/// `sums(streams, words, re, im, out)`: the four sums of each stream over some chunks. `words` are `[chunk][stream]`,
/// `re` and `im` the floats of as many chunks.
pub type StreamSums = fn(streams: usize, words: &[u8], re: &[u8], im: &[u8], out: &mut [[f32; 4]]);

/// `kernel(unit, acts, out)`: real and imaginary parts of the sixteen outputs of a unit; what rows that are missing
/// give is of no account.
pub(crate) type Int8Kernel = fn(unit: &Unit<'_>, acts: &[u8], out: &mut [[f32; ROWS]; 2]);
