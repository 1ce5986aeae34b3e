//! Why no file was written.

use thiserror::Error;
use trine_formats::gguf::GgufError;
use trine_formats::types::TypeId;
use trine_formats::widely::WidelyError;

use crate::quant::work::RunError;

/// A plan that cannot be made, or carried out.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum WidelyQuantError {
    #[error("models of architecture '{0}' cannot be made widely linear: llama, qwen2 and qwen3 without experts can")]
    Architecture(String),
    #[error("the model has widely linear matrices already; F32, F16 and BF16 make it dense again")]
    Already,
    #[error("'{0}' is no type of a dense model: F32, F16 and BF16 are")]
    DenseType(String),
    #[error("the model has no matrices of blocks with an even number of rows and columns")]
    NoMatrices,
    #[error(
        "{count} matrices are quantized already (the first is {first}, {ty}), and quantizing twice costs quality; start from an F32, F16 or BF16 file, or accept the loss with --allow-requantize"
    )]
    Requantize { count: usize, first: String, ty: TypeId },
    #[error("tensor {tensor}: {ty} cannot be converted")]
    Codec { tensor: String, ty: TypeId },
    #[error("tensor {tensor}: the file has not all of it")]
    CutOff { tensor: String },
    #[error("tensor {tensor} holds {value} in row {row}, column {column}: the model is damaged")]
    NotFinite { tensor: String, row: usize, column: usize, value: f32 },
    #[error("tensor {tensor}: {value:e} in row {row} is too large for {ty}; choose BF16 or F32")]
    Overflow { tensor: String, row: usize, value: f32, ty: TypeId },
    #[error("tensor {tensor}: {rows} rows are not whole heads of {head_dim}, so that their order is not known")]
    Heads { tensor: String, rows: usize, head_dim: u64 },
    #[error(
        "tensor {tensor} has shape {shape:?}: the four matrices of a widely linear one are of one shape and made of tiles of 64 x 64"
    )]
    Tiles { tensor: String, shape: Vec<u64> },
    #[error("{0}")]
    Model(String),
    #[error("the architecture has no place for tensor '{0}'")]
    NoPlace(String),
    #[error(transparent)]
    Widely(#[from] WidelyError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Run(#[from] RunError),
}
