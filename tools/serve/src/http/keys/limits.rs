//! Limits of a key.

/// Limits of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most requests for texts or vectors at the same time.
    pub concurrent: Option<usize>,
    /// Tokens a minute, of prompts and of texts, over a while.
    pub tokens_per_minute: Option<u64>,
    /// Priority: requests with a higher one get their places first.
    pub priority: i32,
    /// The models that may be asked for; none: all.
    pub models: Vec<String>,
}
