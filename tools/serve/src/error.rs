//! Errors that a client gets instead of a text.

use serde_json::{Map, Value, json};

use crate::engine::Refused;

/// The APIs whose clients look for errors in a form of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's, and llama-server's, which has the same.
    OpenAi,
    /// Anthropic's.
    Anthropic,
    /// Ollama's.
    Ollama,
}

impl Dialect {
    /// The API that a path belongs to.
    pub fn of_path(path: &str) -> Dialect {
        if path.starts_with("/api/") {
            Dialect::Ollama
        } else if path.starts_with("/v1/messages") {
            Dialect::Anthropic
        } else {
            Dialect::OpenAi
        }
    }
}

/// An answer that is no text.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The status of HTTP.
    pub status: u16,
    /// The kind of error, in the words that llama-server uses.
    pub kind: &'static str,
    /// Description of the error.
    pub message: String,
    /// Seconds after which to try again.
    pub retry_after: Option<u64>,
    /// Further members of the error object.
    more: Vec<(&'static str, Value)>,
}

impl ApiError {
    /// An error of any kind.
    pub fn new(status: u16, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, message: message.into(), retry_after: None, more: Vec::new() }
    }

    /// The request makes no sense.
    pub fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "invalid_request_error", message)
    }

    /// A field of the request makes no sense.
    pub fn field(name: &str, what: impl std::fmt::Display) -> ApiError {
        ApiError::invalid(format!("Field '{name}': {what}")).with("param", name)
    }

    /// A field of the request asks for what this server does not do.
    pub fn unsupported(name: &str) -> ApiError {
        ApiError::field(name, "not supported; leave it out")
    }

    /// The route is known, but this server does not have it.
    pub fn not_here(message: impl Into<String>) -> ApiError {
        ApiError::new(501, "not_supported_error", message)
    }

    /// Not now.
    pub fn unavailable(message: impl Into<String>, retry_after: u64) -> ApiError {
        ApiError { retry_after: Some(retry_after), ..ApiError::new(503, "unavailable_error", message) }
    }

    /// Too many ask at once.
    pub fn busy(message: impl Into<String>, retry_after: u64) -> ApiError {
        ApiError { retry_after: Some(retry_after), ..ApiError::new(429, "rate_limit_error", message) }
    }

    /// A fault of ours.
    pub fn server(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "server_error", message)
    }

    /// The prompt does not fit.
    pub fn too_long(tokens: usize, n_ctx: usize) -> ApiError {
        // Clients recognize a full context by these words of the message, or by the reason.
        let message = Refused::TooLong { tokens, n_ctx }.to_string();
        ApiError::new(400, "exceed_context_size_error", message)
            .with("n_prompt_tokens", tokens)
            .with("n_ctx", n_ctx)
            .with("reason", "context_length_exceeded")
    }

    /// The error with one more member.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> ApiError {
        self.more.push((name, value.into()));
        self
    }

    /// The object that a client of this API gets.
    pub fn body(&self, dialect: Dialect) -> Value {
        let anthropic = dialect == Dialect::Anthropic;
        if dialect == Dialect::Ollama {
            return json!({ "error": self.message });
        }
        let mut error = Map::new();
        error.insert("code".into(), self.status.into());
        error.insert("message".into(), self.message.as_str().into());
        let kind = match self.kind {
            "server_error" if anthropic => "api_error",
            "unavailable_error" if anthropic => "overloaded_error",
            "exceed_context_size_error" if anthropic => "invalid_request_error",
            kind => kind,
        };
        error.insert("type".into(), kind.into());
        error.extend(self.more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        match anthropic {
            true => json!({ "type": "error", "error": error }),
            false => json!({ "error": error }),
        }
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> ApiError {
        let message = refused.to_string();
        match refused {
            Refused::Invalid(_) | Refused::NeverFits { .. } | Refused::TooMuch { .. } => ApiError::invalid(message),
            Refused::TooLong { tokens, n_ctx } => ApiError::too_long(tokens, n_ctx),
            Refused::Busy { retry_after, .. } => ApiError::busy(message, retry_after),
            Refused::WaitedTooLong { .. } | Refused::Draining => ApiError::unavailable(message, 1),
        }
    }
}
