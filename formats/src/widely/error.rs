//! Why a file with widely linear matrices was refused.

use thiserror::Error;

use crate::gguf::GgufError;
use crate::types::TypeId;

/// Errors in the keys and tensors of widely linear matrices.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WidelyError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("key 'fairy2i.wl.version' is {0}, and only version 1 is known: the file was made by a newer program")]
    Version(u32),
    #[error("the file has the layout of the Fairy2i fork of llama.cpp: 'rquantize FILE OUT FAIRY2I' translates it")]
    Fork,
    #[error("key '{0}' is missing")]
    MissingKey(&'static str),
    #[error("key '{key}' is '{found}', expected {expected}")]
    Key { key: &'static str, found: String, expected: &'static str },
    #[error("tensor '{tensor}' is missing or cut off, and '{other}' is there: the file is damaged")]
    MissingPart { tensor: String, other: String },
    #[error("tensor '{tensor}' is there beside '{other}', and a matrix is stored in one form: the file is damaged")]
    Both { tensor: String, other: String },
    #[error("tensor '{tensor}' is of type {found}, expected {expected}")]
    Type { tensor: String, found: TypeId, expected: TypeId },
    #[error(
        "tensor '{tensor}' has shape {found:?}, and {rows} rows, {columns} columns and the keys 'fairy2i.wl.stages' and 'fairy2i.wl.scale_scope' make it {expected:?}"
    )]
    Extents { tensor: String, found: Vec<u64>, expected: Vec<u64>, rows: usize, columns: usize },
    #[error(
        "tensor '{tensor}', row {row}, block {block}: the scales are not those of the first row of its tile: the file is damaged"
    )]
    TileScales { tensor: String, row: usize, block: usize },
    #[error(
        "tensor '{tensor}': {rows} rows and {columns} columns cannot be halved, so the matrix has no widely linear form"
    )]
    Odd { tensor: String, rows: usize, columns: usize },
    #[error(
        "tensor '{tensor}', entry {index}: a scale is {value}, expected a finite number above 0: the file is damaged"
    )]
    Scale { tensor: String, index: usize, value: String },
}
