//! Errors in making a grammar, or of a text that follows it.

/// Longest source of a grammar, in bytes.
pub(super) const MAX_SOURCE: usize = 256 << 10;

/// Why there is no grammar, or no way on in one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// The source is too long.
    #[error("the grammar has more than {MAX_SOURCE} bytes")]
    TooLong,
    /// A GBNF grammar is not well formed.
    #[error("line {line} of the grammar: {what}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// The problem there.
        what: String,
    },
    /// The grammar is well formed and cannot be followed: a keyword that is not known, or too many rules.
    #[error("the grammar cannot be followed: {0}")]
    Refused(String),
    /// A text is not what the grammar allows, or following it takes too much.
    #[error("the text cannot go on by its grammar: {0}")]
    Stopped(String),
}
