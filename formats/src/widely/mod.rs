//! Widely linear matrices: layers `y = U x + W conj(x)` whose weights are fourth roots of unity.
//!
//! A real matrix of `2n` rows and `2m` columns acts on complex vectors stored in two parts: `x = (x_re, x_im)`, `y =
//! (y_re, y_im)`, the first half of a vector its real part, the second its imaginary part. Every such matrix is one
//! pair of complex matrices `U`, `W` of `n` rows and `m` columns ([`split`]). Fairy2i ([`quantize`]) replaces each by a
//! sum of one to four *stages*, in which every element is one of −1, +1, −i, +i times a scale of its axis: two bits for
//! two real weights and stage. A matrix `NAME` is stored as two tensors:
//!
//! ```text
//! NAME.wl_codes  I32  [2T, ⌈m/16⌉, n]  word of row r, chunk c, stream s: the codes of columns 16c … 16c+15, the code of
//!                                      column 16c + j in bits 2j (1: positive) and 2j + 1 (1: imaginary axis), so that
//!                                      0 is −1, 1 is +1, 2 is −i, 3 is +i; columns past the last have code 1;
//!                                      streams: stages 0 … T−1 of U, then of W
//! NAME.wl_scale  F32  [2, T, 2, G]     scale of the real and of the imaginary axis, for each stage, of U and of W, for
//!                                      each of G groups: the whole matrix, a row, or a tile of 64 x 64
//! ```
//!
//! The Fairy2i fork of llama.cpp has a layout of its own ([`tile64`]), which is translated into this one.
//!
//! `product` is the definition of every bit of a product in single precision, [`int8`] that of products with 8-bit
//! activations, `dense` the real matrix that the stages add up to.

mod codes;
mod dense;
mod error;
pub mod int8;
mod keys;
mod matrix;
mod product;
pub mod quantize;
pub mod tile64;

pub use codes::{CHUNK, Scope, Shape, axis_is_imaginary, is_positive, pack_row, unpack_row};
pub use dense::dense_rows;
pub use error::WidelyError;
pub use keys::{BaseArch, Header, OutputForm};
pub use matrix::{Part, WidelyMatrix, find};
pub use product::{Lanes, combine, product_row, reduce};
pub use quantize::{Profile, Rule, TieRule, split};

/// `general.architecture` of files with such matrices.
pub const ARCHITECTURE: &str = "fairy2i";

/// The version of the layout that this module reads and writes.
pub const VERSION: u32 = 1;

/// Most stages of a matrix.
pub const MAX_STAGES: usize = 4;

/// Rows and columns of a tile with scales of its own.
pub const TILE: usize = 64;
