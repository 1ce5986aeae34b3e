//! The thread pool of the forward pass.
//!
//! A forward pass is a few hundred short regions (a projection, attention, a norm) between which only a microsecond
//! passes, so helpers spin for a while after each region and park only when nothing comes. Tasks are taken from a
//! counter in runs that get shorter to the end: a helper that the system has put aside holds up at most the run it has
//! taken, and one that wakes too late finds nothing left to do.
//!
//! The pool of a pass is ambient: [`Pool::install`] makes it current for a closure, and [`for_each`]
//! and [`chunks_mut`] use the current one. Without one, or inside a task, they run in the calling
//! thread. Quantizing and packing use rayon instead.
//!
//! Callers share a pool: clones of a [`Pool`] are handles of the same helpers. Every caller works on
//! its own region, and helpers divide themselves among the regions that have tasks left, so that none
//! goes without them for long. Who runs a task never changes its result.

mod handle;
mod helpers;
mod parts;
mod patience;
mod region;
mod sync;
#[cfg(test)]
mod tests;

pub use handle::{Pool, for_each, threads};
pub use parts::{Parts, Tile, blocks_mut, chunk_pairs_mut, chunks_mut, tiles_mut};
