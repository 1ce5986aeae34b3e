//! File formats: GGUF, ggml tensor types and importance matrices, in plain safe Rust.
//!
//! Everything here reads from a byte slice that may be hostile: every count is checked against the
//! bytes that are left before anything is allocated, and every error names the place.
#![forbid(unsafe_code)]

pub mod anyprec;
pub mod file_id;
pub mod gguf;
pub mod hessian;
pub mod imatrix;
pub mod limited;
pub mod pruned;
pub mod rotated;
pub mod safetensors;
pub mod temp_file;
pub mod types;
pub mod widely;
