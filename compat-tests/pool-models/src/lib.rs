//! The thread pool under loom, which goes through the orders in which its threads may run and through the values that
//! their loads may see.
//!
//! The files are the pool's own, from `src/pool`; only `sync` and `patience` are this crate's, which give it loom's
//! threads, atomics, locks and cells in place of the system's, and looks in place of time. docs/notes/pool.md says what
//! the models show and what they cannot.
#![cfg(test)]

mod callers;
mod model;
#[allow(dead_code)]
mod pool;
mod regions;
mod sleep;
