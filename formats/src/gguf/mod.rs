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
mod tensor;
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
pub use tensor::TensorInfo;

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
    /// True if the file may end before its last tensor does: see [`Limits::partial`].
    pub partial: bool,
    /// Whose type numbers the file uses; the tensors' types are translated already.
    pub dialect: Dialect,
}
