//! JSON in, requests for the engine out.

pub mod adapters;
pub mod anthropic;
pub mod asked;
pub mod biases;
pub mod caller;
pub mod fields;
pub mod infill;
pub mod keep_alive;
pub mod messages;
pub mod ollama;
pub mod prompt;
pub mod responses;
pub mod sampling;
pub mod structure;
pub mod thoughts;
pub mod tools;
pub mod unsupported;

pub use adapters::adapters;
pub use asked::Asked;
pub use caller::{Caller, cache, named};

use crate::error::ApiError;
use crate::service::ResponseFormat;

/// Why a request was not read.
#[derive(Debug)]
pub enum Unread {
    /// The request makes no sense.
    Refused(ApiError),
    /// The grammar of this format must be compiled before.
    Form(ResponseFormat),
}

impl From<ApiError> for Unread {
    fn from(e: ApiError) -> Unread {
        Unread::Refused(e)
    }
}
