//! Plain models to models with widely linear matrices, and back.
//!
//! [`Widely`] decides from the headers which matrices become codes and scales, or which tensors they become again, and
//! makes them a part of a matrix at a time.

mod codes;
mod content;
mod dense;
mod error;
mod fork;
mod make;
mod matrices;
mod method;
mod rows;

pub use crate::widely::Options;
pub use error::WidelyQuantError;
pub use matrices::matrices;
pub use method::Widely;
