//! JSON in, requests out; events in, JSON out. Nothing here knows of HTTP.
//!
//! The shapes are llama-server's where its own tests look and OpenAI's where clients look. Fields that are not known
//! are ignored, `null` means absent, a wrong type is an error that names the field, and what is known but cannot be
//! done is refused by name.

pub mod answer;
pub mod embeddings;
pub mod models;
pub mod ollama;
pub mod openapi;
pub mod props;
pub mod request;
pub mod rerank;
pub mod tokens;

pub use answer::reply::Reply;

pub use crate::error::{ApiError, Dialect};

/// The routes that generate texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/completion`, llama-server's own.
    Native,
    /// `/infill`: the text of a gap, in llama-server's form.
    Infill,
    /// `/v1/completions`.
    Text,
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
    /// `/api/chat`.
    OllamaChat,
    /// `/api/generate`, which is a chat of one message unless it is raw.
    OllamaGenerate,
}

impl Route {
    /// The API that it is part of.
    pub fn dialect(self) -> Dialect {
        match self {
            Route::Native | Route::Infill | Route::Text | Route::Chat | Route::Responses => Dialect::OpenAi,
            Route::Messages => Dialect::Anthropic,
            Route::OllamaChat | Route::OllamaGenerate => Dialect::Ollama,
        }
    }

    /// True if an answer is one text, whatever the request says.
    pub fn has_one_answer(self) -> bool {
        !matches!(self, Route::Native | Route::Infill | Route::Text | Route::Chat)
    }
}
