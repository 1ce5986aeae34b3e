//! The reasons why no matrix can be collected.

use std::error::Error;

use trine_formats::imatrix::ImatrixError;

use crate::step::StepError;

/// Chunks that may run side by side; llama.cpp's limit.
pub(super) const MAX_SIDE_BY_SIDE: usize = 256;

/// Why no matrix can be collected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    /// The model cannot take the tokens.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A batch of very many very small chunks.
    #[error(
        "a batch of {n_batch} tokens holds {chunks} chunks of {n_ctx}, at most {MAX_SIDE_BY_SIDE} can run side by side; use a smaller -b"
    )]
    SideBySide {
        /// Tokens in a batch.
        n_batch: usize,
        /// Chunks in it.
        chunks: usize,
        /// Tokens in a chunk.
        n_ctx: usize,
    },
    /// The matrix to continue is not of this model.
    #[error(
        "'{tensor}' has {have} columns in the matrix to go on with and {want} in the model; is it of another model?"
    )]
    Columns {
        /// The weight.
        tensor: String,
        /// Columns in the file.
        have: usize,
        /// Columns in the model.
        want: usize,
    },
    /// The matrix to continue from has another number of experts.
    #[error(
        "'{tensor}' has {have} experts in the matrix to go on with and {want} in the model; is it of another model?"
    )]
    Experts {
        /// The weights.
        tensor: String,
        /// Experts in the file.
        have: usize,
        /// Experts in the model.
        want: usize,
    },
    /// The model computed a NaN or an infinity.
    #[error(
        "non-finite activations go into '{tensor}' in chunks {first} to {last}: the model's weights are damaged or overflow"
    )]
    NonFinite {
        /// The weight.
        tensor: String,
        /// First chunk of the batch, counted from 1.
        first: usize,
        /// Last chunk of the batch.
        last: usize,
    },
    /// More tokens than can be counted.
    #[error(transparent)]
    Matrix(#[from] ImatrixError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The caller failed with a finished group.
    #[error(transparent)]
    Watch(Box<dyn Error + Send + Sync>),
}
