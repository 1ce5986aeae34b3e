//! Why a model is not rotated.

use thiserror::Error;
use trine_formats::gguf::GgufError;
use trine_formats::rotated::{PREFIX, RotatedError};
use trine_formats::types::TypeId;

use crate::model::ModelError;

/// A rotation that makes no sense for the model.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum RotateError {
    #[error("the model is rotated already, in blocks of {0}: --unrotate first")]
    Already(usize),
    #[error("the model has no keys {PREFIX}*: its weights are not rotated")]
    NotRotated,
    #[error("only a model that runs is rotated, because its program says what is multiplied: {0}")]
    Model(#[from] Box<ModelError>),
    #[error("blocks of {0}: a block is a power of two from 2 to 65536")]
    Block(usize),
    #[error(
        "{count} matrices have rows that are no whole blocks of {block} (the first is {first}, {columns} columns); take blocks of {most} or less, or leave these matrices as they are with --fallback"
    )]
    Misfit { count: usize, first: String, columns: u64, block: usize, most: u64 },
    #[error("no matrix that can be rotated has rows of whole blocks of {0}")]
    Nothing(usize),
    #[error(
        "{count} matrices are quantized (the first is {first}, {ty}); name the type that rotated matrices get, F32, F16 or BF16, behind the output"
    )]
    Quantized { count: usize, first: String, ty: TypeId },
    #[error("rotated matrices become F32, F16 or BF16, not {0}; quantize the file that is written then")]
    Type(TypeId),
    #[error("tensor {tensor} of type {ty} is not read row by row; make an F16 file of the model first")]
    Codec { tensor: String, ty: TypeId },
    #[error("{PREFIX}weight_names or {PREFIX}inverse_weight_names names tensor {0}, which the model has not")]
    Missing(String),
    #[error("tensor {tensor} cannot be turned: {why}")]
    Rows { tensor: String, why: String },
    #[error(transparent)]
    Keys(#[from] RotatedError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
}
