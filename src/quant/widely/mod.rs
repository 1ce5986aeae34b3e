//! Plain models to models with widely linear matrices, and back.
//!
//! [`Plan::new`] decides from the headers which matrices become codes and scales, [`Plan::dense`] which tensors they
//! become again; [`run`](super::run) carries either out, a part of a matrix at a time.

mod error;
mod fork;
mod matrices;
mod plan;
mod rows;
mod run;

pub use error::WidelyQuantError;
pub use matrices::matrices;
pub use plan::{Content, Plan, Recipe, Row};
