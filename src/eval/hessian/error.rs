//! The reasons why no Hessians can be collected.

use std::error::Error;

use crate::model::ModelError;
use crate::step::StepError;

/// Why no Hessians can be collected.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Model(Box<ModelError>),
    #[error(
        "architecture {arch} cannot be taken layer by layer: {what}; measure it in one pass with rimatrix --hessian"
    )]
    Blocks { arch: &'static str, what: &'static str },
    #[error("'{0}' is multiplied in no block that is left, and its inputs cannot be measured layer by layer")]
    Outside(String),
    #[error("the model has no weight matrices in its blocks")]
    NoMatrices,
    #[error(
        "the sums of the input of '{tensor}' alone take {:.3} GiB of memory and there are {:.3} GiB; use a machine with more", gib(*need), gib(*limit)
    )]
    Memory { tensor: String, need: u64, limit: u64 },
    #[error(
        "non-finite activations go into '{tensor}' in chunks {first} to {last}: the model's weights are damaged or overflow"
    )]
    NonFinite { tensor: String, first: usize, last: usize },
    #[error(
        "'{tensor}' has an input of its own in chunks {first} to {last}, which it shared with '{shared}' before: such a model is not supported"
    )]
    Parted { tensor: String, shared: String, first: usize, last: usize },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Watch(Box<dyn Error + Send + Sync>),
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
