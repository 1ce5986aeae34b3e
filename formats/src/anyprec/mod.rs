//! Any-precision tensors: one GGUF file from which a model runs at several widths.
//!
//! Every row of a matrix has codebooks of its own, one per width, or takes one of a few that the matrix has, and the
//! code of a weight at `b` bits is the `b` leading bits of its code. A matrix `NAME` of `N` rows and `K` columns is stored as tensors of its own:
//!
//! ```text
//! NAME.ap.p0 … NAME.ap.p7   I8   [8 W, N]     bit planes, p0 has the leading bits; W = ⌈K/64⌉
//! NAME.ap.lut3 … .lut8      F16  [2^b, G, N]  the centroids of G groups of columns; no G when it is 1
//!                               in version 2      [2^b, T]     T tables that rows share
//! NAME.ap.scale3 … .scale8  F16  [N]          in version 2: what each row multiplies its table by
//! NAME.ap.class             I8   [N]          in version 2: the number of the table that each row takes, unsigned
//! NAME.ap.sp_ptr            I32  [N + 1]      weights that are stored as they are, where there are any:
//! NAME.ap.sp_col            I32  [nnz]          row r has the entries sp_ptr[r]..sp_ptr[r+1],
//! NAME.ap.sp_val            F16  [nnz]          columns ascending
//!
//! plane p of a row: W words of 64 bits, little-endian; bit i of word j is bit (parent_bits − 1 − p) of the
//! code of column 64 j + i. Bits past the last column are 0.
//! ```
//!
//! The data lies in the order of use: everything that is not a plane or a table, then for each width in
//! ascending order the planes it adds and its tables. A file may therefore end after any width, and is a
//! model of the widths that are whole: [`AnyPrec::read`] tells which.
//!
//! A weight at width `b` is `lut_b[group][code >> (parent_bits − b)]`, or its entry among the sparse ones. In version 2
//! it is `scale_b lut_b[class][code >> (parent_bits − b)]`, rounded once to half precision: [`scaled`].

mod canonical;
mod describe;
mod error;
mod keys;
mod parts;
mod planes;
mod reference;
mod shared;
mod view;

pub use canonical::{BLOCK, FixedLut, QuantizedActivations, add_sparse, dot_f32, dot_i16, quantize_activations};
pub use describe::{AnyPrec, ApTensor};
pub use error::AnyPrecError;
pub use keys::{Calibration, Header, SparseShares};
pub use parts::{MatrixExtents, Part, Section, file_order};
pub use planes::{pack_row, unpack_row, words};
pub use reference::{pack_reference, unpack_reference};
pub use shared::{expand, scaled};
pub use view::{ApView, SparseView};

/// The version of the layout in which every row has tables of its own.
pub const VERSION: u32 = 1;

/// The version of the layout in which rows share tables.
pub const VERSION_SHARED: u32 = 2;

/// Most tables that the rows of a matrix share.
pub const MAX_TABLES: u32 = 256;

/// Most bits of a code.
pub const MAX_BITS: u8 = 8;

/// The order of bits in a plane, the only one there is.
pub const BIT_ORDER: &str = "lsb0-u64le";

/// Alignment of the data in files that trine writes: a cache line.
pub const ALIGNMENT: u32 = 64;
