//! Why a file cannot be tuned.

use thiserror::Error;
use trine_formats::types::TypeId;

use crate::fisher::SequenceError;
use crate::model::ModelError;

/// Why no scales were tuned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The file to tune cannot be run, or has no gradients.
    #[error(transparent)]
    Model(Box<ModelError>),
    /// The reference cannot be run.
    #[error("the reference: {0}")]
    Reference(Box<ModelError>),
    /// Both have tokens of their own.
    #[error("the reference has another vocabulary: tune with the model that the file was made of")]
    Vocabulary,
    /// A matrix that the reference does not have, or has in another shape.
    #[error(
        "tensor {0} is not in the reference, or has another shape there: tune with the model that the file was made of"
    )]
    Shape(String),
    /// A matrix that the reference alone has.
    #[error("the reference has tensor {0}, which the file has not: tune with the model that the file was made of")]
    More(String),
    /// A matrix of a type that cannot be tuned.
    #[error("tensor {tensor}: type {ty} has no scales that are floats, which is what tuning moves")]
    Type {
        /// Its name.
        tensor: String,
        /// Its type.
        ty: TypeId,
    },
    /// An any-precision file of several widths.
    #[error(
        "the file has several widths, whose tables are tuned one by one: take one of them first with rquantize --width"
    )]
    Widths,
    /// An any-precision matrix whose rows share tables.
    #[error("tensor {0}: its rows share tables, which tuning does not move; make the file without --tables to tune it")]
    Shared(String),
    /// A matrix that the model changes before it computes with it.
    #[error(
        "tensor {0}: the model computes with other weights than those of its blocks, so that no gradient leads to its scales"
    )]
    Changed(String),
    /// No matrix of the blocks is quantized.
    #[error(
        "no matrix of the model's blocks is quantized: there are no scales to tune; give the quantized file first and its original behind --reference"
    )]
    Nothing,
    /// A sequence that cannot be evaluated.
    #[error("sequence {number} of the text: {error}")]
    Sequence {
        /// Its number, from 1.
        number: usize,
        /// The reason.
        error: SequenceError,
    },
    /// The divergence at the beginning is no number.
    #[error(
        "the divergence from the reference is {0}: the weights of the file or of the reference are damaged or overflow"
    )]
    NonFinite(f64),
    /// Nothing better was found.
    #[error(
        "no scales were found that are better on the part of the text that was held out: its divergence is {before:.6} nats with the file's own and {after:.6} at best; take more text, or a smaller --rate"
    )]
    Worse {
        /// Divergence of the file.
        before: f64,
        /// Least divergence of a file with other scales.
        after: f64,
    },
}
