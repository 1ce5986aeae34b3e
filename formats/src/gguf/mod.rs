//! GGUF, the container: typed metadata, a tensor table and aligned tensor data.
//!
//! [`Gguf::parse`] reads the header of one file from memory, [`ModelFile`] joins the shards of a model,
//! [`write::Writer`] writes one.

mod cursor;
mod dialect;
mod error;
pub mod file;
mod foreign;
mod layout;
mod metadata;
mod model;
mod packing;
mod programs;
mod read;
mod scatter;
mod shard;
pub mod split;
mod strings;
pub mod write;

pub use cursor::Limits;
pub use dialect::{Dialect, KEY_DIALECT};
pub(crate) use dialect::{FAIRY2I_SCHEMA, is_fairy2i_fork};
pub use error::{ErrorKind, GgufError};
pub use foreign::type_note;
pub use metadata::{Array, Metadata, Value};
pub use model::{ModelFile, TensorView};
pub use packing::{PackingOptions, ShapeTiles, packing, set_tiles};
pub use programs::{Program, programs};
pub use scatter::{Complete, ScatterWriter};
pub use shard::{Blob, ByteStore, Bytes, Shard};
pub use strings::{GgufStr, StrArray};

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

/// The parsed header of one GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub struct Gguf {
    /// 2 or 3.
    pub version: u32,
    /// `general.alignment`, 32 when absent.
    pub alignment: u64,
    /// Key-value pairs.
    pub meta: Metadata,
    /// Tensor table in file order.
    pub tensors: Vec<TensorInfo>,
    /// Where the data section starts in the file.
    pub data_offset: u64,
    /// Whether the file may end before its last tensor does: see [`Limits::partial`].
    pub partial: bool,
    /// Whose type numbers the file uses; the tensors' types are translated already.
    pub dialect: Dialect,
}
