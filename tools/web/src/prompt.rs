//! The beginnings of texts, as requests have them.

use serde::Deserialize;

/// The beginning of a text; one of them.
#[derive(Deserialize)]
pub struct Prompt {
    pub text: Option<String>,
    pub tokens: Option<Vec<u32>>,
    pub messages: Option<Vec<Said>>,
    /// The chat template, or the name of one; without it the model's own.
    pub template: Option<String>,
}

/// A message of a conversation.
#[derive(Deserialize)]
pub struct Said {
    pub role: String,
    pub content: String,
}
