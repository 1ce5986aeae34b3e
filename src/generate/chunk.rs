//! Chunks of a text, and its end.

use super::Told;

/// A step of a generation: the token that was chosen and the text that is certain now.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Whole characters that come next in the text. Empty while a character is incomplete or a stop string may have
    /// begun; that text is in a later chunk then. All chunks together are the text.
    pub text: String,
    /// The token that was chosen; `None` where the text ended without one.
    pub token: Option<u32>,
    /// The token's probability, where [`GenerateOptions::logprobs`](super::GenerateOptions::logprobs) asks for it.
    pub logprobs: Option<Told>,
    /// Why the text ends here; `None`: it goes on.
    pub end: Option<End>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// The model ended it.
    Eos,
    /// As many tokens as were asked for.
    Length,
    /// The text came to the stop string with this index in the options.
    Stop(usize),
    /// The context is full. Nothing is dropped from its beginning to make room.
    Context,
    /// The caller cancelled it.
    Cancelled,
}

/// A whole generated text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The text.
    pub text: String,
    /// Its tokens, the one that ended it included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub end: End,
}
