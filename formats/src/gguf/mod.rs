//! GGUF, the container: typed metadata, a tensor table and aligned tensor data.
//!
//! [`Gguf::parse`] reads the header of one file from memory, [`ModelFile`] joins the shards of a model.

use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use crate::types::TypeId;

/// A string as the file holds it. GGUF says UTF-8, files do not always obey: token texts are bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GgufStr(pub Vec<u8>);

/// A metadata value with its exact type, so that a copy is byte for byte the original.
#[allow(missing_docs, reason = "the names are GGUF's own")]
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(GgufStr),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A homogeneous array. Arrays of arrays are refused, as llama.cpp refuses them.
#[allow(missing_docs, reason = "the names are GGUF's own")]
#[derive(Clone, PartialEq, Debug)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Str(Vec<GgufStr>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Key-value pairs in file order; keys are unique.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
}

impl Metadata {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// All pairs in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Sets `key` the way ggml's `gguf_set_*` does: an existing key is removed and the new pair goes
    /// to the end.
    pub fn set(&mut self, key: &str, value: Value) {
        self.remove(key);
        self.entries.push((key.to_owned(), value));
    }

    /// Removes `key`; says whether it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(k, _)| k != key);
        self.entries.len() != before
    }
}

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

/// The parsed header of one GGUF file.
#[derive(Clone, Debug)]
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
}

/// Shared ownership of the bytes of one file, mapped or read.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A part of a file's bytes that keeps the file alive.
#[derive(Clone)]
pub struct Blob {
    owner: Bytes,
    range: Range<usize>,
}

impl Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

/// One file of a model.
pub struct Shard {
    /// Where it came from, for messages.
    pub path: PathBuf,
    /// Its header.
    pub gguf: Gguf,
    /// Its bytes.
    pub bytes: Bytes,
}

/// A model: one file, or all shards of a split set in order. Metadata is the first shard's.
pub struct ModelFile {
    /// The files, in order of `split.no`.
    pub shards: Vec<Shard>,
}

/// A tensor with its data.
#[derive(Clone)]
pub struct TensorView {
    /// The row of the tensor table.
    pub info: TensorInfo,
    /// Exactly `info.bytes` bytes.
    pub data: Blob,
}
