//! The reasons why a text cannot be evaluated.

use std::io;
use std::ops::Range;

use crate::step::StepError;
use crate::tokenizer::TokenizerError;

/// Why a text cannot be evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The text cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The text is too short.
    #[error(
        "the text is too short: {tokens} tokens, but a context of {n_ctx} needs at least {needed}; use a longer text or a smaller -c"
    )]
    TooShort {
        /// Tokens in the text.
        tokens: usize,
        /// Context size.
        n_ctx: usize,
        /// Tokens needed.
        needed: usize,
    },
    /// A context that leaves no position to score.
    #[error("a context of {0} leaves no position to score; use -c 3 or more")]
    SmallContext(usize),
    /// A stride that leaves out tokens, or moves nothing.
    #[error("a stride of {stride} does not fit chunks of {n_ctx} tokens; use 1 to {}", .n_ctx - 1)]
    Stride {
        /// Tokens from chunk to chunk.
        stride: usize,
        /// Tokens of a chunk.
        n_ctx: usize,
    },
    /// No chunk to evaluate.
    #[error("no chunk is wanted; use --chunks 1 or more")]
    NoChunks,
    /// A part that the text does not have.
    #[error("there are {count} chunks; none from number {} to {}", .part.start + 1, .part.end)]
    Part {
        /// The chunks wanted, counted from 0.
        part: Range<usize>,
        /// The chunks that there are.
        count: usize,
    },
    /// The model computed a NaN or an infinity.
    #[error("non-finite logits at chunk {chunk}, position {position}: the model's weights are damaged or overflow")]
    NonFinite {
        /// Counted from 1, as in the output.
        chunk: usize,
        /// In the chunk, from 0.
        position: usize,
    },
    /// The model cannot take the tokens.
    #[error(transparent)]
    Step(StepError),
    /// The base file cannot be written.
    #[error("cannot write the log-probabilities")]
    Write(#[source] io::Error),
    /// The base file cannot be read or does not fit.
    #[error(transparent)]
    Base(#[from] BaseError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<StepError> for EvalError {
    fn from(e: StepError) -> EvalError {
        match e {
            StepError::Cancelled => EvalError::Interrupted,
            e => EvalError::Step(e),
        }
    }
}

/// Why a base file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaseError {
    /// The file cannot be read.
    #[error("cannot read the log-probabilities ({what})")]
    Read {
        /// The part of the file.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Something else.
    #[error("it is not a file of log-probabilities: it does not start with \"_logits_\"")]
    Magic,
    /// Counts that cannot be.
    #[error("its header is damaged: n_ctx {n_ctx}, n_vocab {n_vocab}, {n_chunk} chunks")]
    Header {
        /// Context size.
        n_ctx: u32,
        /// Vocabulary.
        n_vocab: i32,
        /// Chunks.
        n_chunk: i32,
    },
    /// Cut off, or longer than it says.
    #[error(
        "it has {found} bytes, but {n_chunk} chunks of {n_ctx} tokens over a vocabulary of {n_vocab} take {expected}: it was cut off or is damaged"
    )]
    Length {
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u128,
        /// Context size.
        n_ctx: u32,
        /// Vocabulary.
        n_vocab: i32,
        /// Chunks.
        n_chunk: i32,
    },
    /// Made by a model with another vocabulary.
    #[error("it was made with a vocabulary of {file} tokens, the model has {model}: it belongs to another model")]
    Vocabulary {
        /// Tokens of the vocabulary in the file.
        file: usize,
        /// Tokens of the model's vocabulary.
        model: usize,
    },
    /// A token outside the vocabulary.
    #[error("its token {index} is {id}, outside the vocabulary of {n_vocab}")]
    Token {
        /// Number of the token in the file.
        index: usize,
        /// Its value.
        id: i32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
}
