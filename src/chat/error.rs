//! The reasons why a conversation cannot be rendered.

use trine_formats::gguf::GgufError;

use crate::isolate::Failure;
use crate::tokenizer::TokenizerError;

/// Why a conversation cannot be rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is not valid.
    #[error("the chat template is not valid: {0}")]
    Syntax(String),
    /// The template failed, or refused the conversation.
    #[error("the chat template failed: {0}")]
    Failed(String),
    /// The template wrote too much.
    #[error("the chat template wrote more than {0} bytes")]
    TooLong(usize),
    /// The template took too much time or memory, or broke off. In this process its thread may still be running: a
    /// program that gets this should end.
    #[error("the chat template was stopped: {0}")]
    Stopped(#[from] Failure),
    /// A message has the text of a control token and the template takes the message apart; or a call or the description
    /// of a function has one.
    #[error(
        "a message, a function or a variable contains the text of a control token that cannot be kept apart from the control tokens of the chat template; leave that text out"
    )]
    Unprotected,
    /// The rendered conversation cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The metadata value is not a text.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}
