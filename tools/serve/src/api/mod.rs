//! JSON in, requests out; events in, JSON out. Nothing here knows of HTTP.
//!
//! The shapes are llama-server's where its own tests look and OpenAI's where clients look. Fields that are not known
//! are ignored, `null` means absent, a wrong type is an error that names the field, and what is known but cannot be
//! done is refused by name.

pub mod answer;
pub mod embeddings;
pub mod models;
pub mod openapi;
pub mod props;
pub mod request;
pub mod tokens;

pub use answer::reply::Reply;

pub use crate::error::ApiError;

/// The routes that generate texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/completion`, llama-server's own.
    Native,
    /// `/v1/completions`.
    Text,
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
}

impl Route {
    /// True if the request is a chat, in whatever form.
    pub fn is_chat(self) -> bool {
        matches!(self, Route::Chat | Route::Responses | Route::Messages)
    }
}
