//! One error for programs that do several things with a model.

#[cfg(feature = "chat")]
use crate::chat::ChatError;
use crate::eval;
use crate::generate::GenerateError;
use crate::handle::{EmbedError, RankError};
use crate::open::OpenError;
use crate::quant::{PlanError, QuantError};
use crate::step;
use crate::tokenizer::TokenizerError;

/// Any error of the functions that the front page names, so that `?` works on all of them. Displayed it is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model could not be opened.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// A text could not be generated.
    #[error(transparent)]
    Generate(Box<GenerateError>),
    /// A text has no vector.
    #[error(transparent)]
    Embed(Box<EmbedError>),
    /// Texts could not be ranked.
    #[error(transparent)]
    Rank(Box<RankError>),
    /// A text could not be encoded.
    #[error(transparent)]
    Tokenizer(Box<TokenizerError>),
    /// A conversation could not be rendered.
    #[cfg(feature = "chat")]
    #[error(transparent)]
    Chat(Box<ChatError>),
    /// A session refused tokens.
    #[error(transparent)]
    Session(Box<step::EvalError>),
    /// A text could not be evaluated.
    #[error(transparent)]
    Eval(Box<eval::EvalError>),
    /// A recipe makes no sense for a model.
    #[error(transparent)]
    Plan(Box<PlanError>),
    /// A model could not be quantized.
    #[error(transparent)]
    Quantize(Box<QuantError>),
}

macro_rules! from {
    ($($(#[$when:meta])? $variant:ident: $error:ty,)*) => {$(
        $(#[$when])?
        impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::$variant(Box::new(error))
            }
        }
    )*};
}

from! {
    Open: OpenError,
    Generate: GenerateError,
    Embed: EmbedError,
    Rank: RankError,
    Tokenizer: TokenizerError,
    #[cfg(feature = "chat")]
    Chat: ChatError,
    Session: step::EvalError,
    Eval: eval::EvalError,
    Plan: PlanError,
    Quantize: QuantError,
}
