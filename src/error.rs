//! One error for programs that do several things with a model.

use crate::chat::ChatError;
use crate::eval;
use crate::generate::GenerateError;
use crate::model;
use crate::open::OpenError;
use crate::quant::{PlanError, QuantError};
use crate::tokenizer::TokenizerError;

/// Any error of the functions that the front page names, so that `?` works on all of them. Displayed it is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A text could not be generated.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A text could not be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A conversation could not be rendered.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// A session refused tokens.
    #[error(transparent)]
    Session(#[from] model::EvalError),
    /// A text could not be evaluated.
    #[error(transparent)]
    Eval(#[from] eval::EvalError),
    /// A recipe makes no sense for a model.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A model could not be quantized.
    #[error(transparent)]
    Quantize(#[from] QuantError),
}
