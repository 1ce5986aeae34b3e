//! JSON in, requests for the engine out.

pub mod anthropic;
pub mod asked;
pub mod biases;
pub mod caller;
pub mod fields;
pub mod messages;
pub mod prompt;
pub mod responses;
pub mod sampling;
pub mod structure;
pub mod tools;
pub mod unsupported;

pub use asked::Asked;
pub use caller::{Caller, cache};
