//! The pool: its own files, and this crate's `sync` and `patience`.

#[path = "../../../../src/pool/handle.rs"]
mod handle;
#[path = "../../../../src/pool/helpers.rs"]
mod helpers;
pub mod patience;
#[path = "../../../../src/pool/region.rs"]
mod region;
pub mod sync;

pub use handle::{Pool, for_each, threads};
