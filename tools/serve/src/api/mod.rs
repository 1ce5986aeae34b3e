//! JSON in, requests out; events in, JSON out. Nothing here knows of HTTP.
//!
//! The shapes are llama-server's where its own tests look and OpenAI's where clients look. Fields that are not known
//! are ignored, `null` means absent, a wrong type is an error that names the field, and what is known but cannot be
//! done is refused by name.

pub mod asked;
pub mod chat;
pub mod error;
pub mod fields;
pub mod models;
pub mod native;
pub mod probabilities;
pub mod prompt;
pub mod props;
pub mod reply;
pub mod sampling;
pub mod shapes;
pub mod text;
pub mod tokens;
pub mod unsupported;

pub use error::ApiError;
pub use reply::Reply;

/// The routes that generate texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/completion`, llama-server's own.
    Native,
    /// `/v1/completions`.
    Text,
    /// `/v1/chat/completions`.
    Chat,
}
