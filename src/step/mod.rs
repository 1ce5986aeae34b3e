//! The forward pass over any number of sequences at once.
//!
//! A step takes the next tokens of some sequences, reads every weight once for all of them, and hands out the logits
//! that are wanted, or the hidden states that logits are made of ([`Sink`], [`Pooled`]). Sequences share pages of keys
//! and values where they begin alike ([`Sequence::fork`]).
//!
//! **Batch mates.** Which other sequences share a step, how prompts are cut into steps, which pages are shared and what
//! was cancelled before never changes a bit of a sequence's logits: every output is one chain of roundings over that
//! sequence's own numbers, in an order that positions alone decide (contract N7 in `docs/determinism.md`).
//!
//! [`Engine`] is what a server stands on, [`PrefixTree`] remembers what was evaluated for the next sequence that begins
//! alike; [`Session`] is the convenience of one sequence.

mod blocks;
mod engine;
mod pooling;
mod prefix;
mod saved;
mod session;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub use crate::kv::{OutOfPages, PagePool, Sequence};
pub use crate::program::{Scales, Setting};
pub use engine::{Engine, Segment, StepError, StepOptions};
pub use pooling::{NotFinite, Pooled, Pooling, Scale};
pub use prefix::{Kind, PrefixTree};
pub use saved::{Room, SavedError, read as read_saved, write as write_saved};
pub use session::{EvalError, Session, SessionOptions};
pub use sink::Sink;
