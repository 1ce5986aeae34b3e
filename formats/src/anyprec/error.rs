//! Why an any-precision file was refused.

use thiserror::Error;

use crate::gguf::GgufError;
use crate::types::TypeId;

/// Errors in any-precision keys and tensors.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnyPrecError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("key 'anyprec.version' is {0}, and only versions 1 and 2 are known: the file was made by a newer program")]
    Version(u32),
    #[error("key 'anyprec.bit_order' is '{0}', expected 'lsb0-u64le'")]
    BitOrder(String),
    #[error("key 'anyprec.{key}': {what}")]
    Key { key: &'static str, what: String },
    #[error("tensor '{tensor}' is missing: the file is damaged")]
    MissingPart { tensor: String },
    #[error("tensor '{tensor}' is {found}, expected {expected}")]
    PartType { tensor: String, found: TypeId, expected: TypeId },
    #[error("tensor '{tensor}' has shape {found:?}, expected {expected:?}")]
    PartShape { tensor: String, found: Vec<u64>, expected: Vec<u64> },
    #[error("tensor '{tensor}' is there both as it is and in any-precision form: the file is damaged")]
    Both { tensor: String },
    #[error("tensor '{tensor}' belongs to no tensor that the key 'anyprec.tensors' lists")]
    Stray { tensor: String },
    #[error("tensor '{tensor}' is empty: the file is damaged")]
    Empty { tensor: String },
    #[error("tensor '{tensor}', entry {index}: {what}")]
    Sparse { tensor: String, index: usize, what: String },
    #[error("tensor '{tensor}': row {row} takes table {class}, of {tables}: the file is damaged")]
    Class { tensor: String, row: usize, class: u8, tables: usize },
    #[error("the file ends after {have} bytes, before tensor '{tensor}', which every width needs: download more of it")]
    TooShort { tensor: String, have: u64 },
    #[error("{asked} bits are not in the file: it has {available}")]
    Width { asked: u8, available: String },
    #[error("there is no any-precision tensor '{0}' in the file")]
    NoTensor(String),
}
