//! Errors of generating a text.

#[cfg(feature = "chat")]
use crate::chat::ChatError;
use crate::model::WidthError;
use crate::sample::SampleError;
use crate::step::{EvalError, StepError};
use crate::tokenizer::TokenizerError;

use super::ChooseError;
use super::speculate::SpeculateError;

/// Why a text cannot be generated, or not go on. The context is still usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// There is no token to start from.
    #[error("the prompt is empty, and this model has no BOS token to start from")]
    EmptyPrompt,
    /// There is no token that a text begins with behind a prompt that an encoder reads.
    #[error("the model's file names no token that texts begin with (decoder_start_token_id), and it has no BOS token")]
    NoFirstToken,
    /// The prompt does not fit into the context.
    #[error(
        "the prompt is too long: {tokens} tokens, but a context of {n_ctx} has room for {room}; use a larger -c or a shorter prompt"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Size of the context.
        n_ctx: usize,
        /// Tokens that a prompt may have: some room is left for an answer.
        room: usize,
    },
    /// A stop string without text would stop everything.
    #[error("stop string {index} is empty")]
    EmptyStop {
        /// Which of the stop strings.
        index: usize,
    },
    /// The model was not made to chat.
    #[error("the model has no chat template; give one, or continue texts instead")]
    NoTemplate,
    /// The prompt cannot be encoded.
    #[error(transparent)]
    Tokenizer(Box<TokenizerError>),
    /// The conversation cannot be rendered.
    #[cfg(feature = "chat")]
    #[error(transparent)]
    Chat(Box<ChatError>),
    /// The model cannot run at the width asked for.
    #[error(transparent)]
    Width(#[from] WidthError),
    /// There can be no such drafts.
    #[error(transparent)]
    Drafts(#[from] SpeculateError),
    /// The sampler's options make no sense.
    #[error(transparent)]
    Sampler(SampleError),
    /// No token can be chosen.
    #[error("position {position}: {error}")]
    Sample {
        /// Position of the token whose logits they are.
        position: usize,
        /// Why.
        error: Box<ChooseError>,
    },
    /// The model refused tokens.
    #[error(transparent)]
    Eval(#[from] EvalError),
}

impl GenerateError {
    /// True if a pass was ended because the caller cancelled it.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self, GenerateError::Eval(EvalError::Step(StepError::Cancelled)))
    }
}

// Boxed, because an error that is nearly never there should not make every result large.

impl From<TokenizerError> for GenerateError {
    fn from(error: TokenizerError) -> GenerateError {
        GenerateError::Tokenizer(Box::new(error))
    }
}

#[cfg(feature = "chat")]
impl From<ChatError> for GenerateError {
    fn from(error: ChatError) -> GenerateError {
        GenerateError::Chat(Box::new(error))
    }
}
