//! The reasons why no Hessians can be collected.

use std::error::Error;

use crate::step::StepError;

/// Why no Hessians can be collected.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(
        "'{0}' is made of experts, whose Hessians are not supported: an importance matrix knows them (rimatrix without --hessian)"
    )]
    Experts(String),
    #[error("the model has no weight matrices in its blocks")]
    NoMatrices,
    #[error(
        "the sums of {inputs} inputs take {:.1} GiB of memory and {:.1} GiB are free; use a machine with more", gib(*need), gib(*limit)
    )]
    Memory { inputs: usize, need: u64, limit: u64 },
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
