//! The engine of the server: requests in, events out.
//!
//! A [`Handle`] puts requests into a bounded queue. One thread owns the sequences; in every step it takes requests in,
//! puts the next token of every running sequence and chunks of the prompts that are being read into one forward pass, and
//! lets their text machines choose. What a step consists of depends on time and load; what comes out does not, because the model's logits
//! have the same bits in any step (contract N7 of `docs/determinism.md`).

mod backend;
mod counters;
mod handle;
mod job;
mod memory;
mod options;
mod prefill;
mod queue;
mod request;
mod running;
mod scheduler;
mod slots;
mod thread;

pub use counters::{Counters, Drafts, Slot};
pub use handle::{Answer, Handle};
pub use memory::available as available_memory;
pub use options::Options;
pub(crate) use options::{MOST_BIASES, MOST_STOPS};
pub use queue::Admission;
pub use request::{Done, Ended, Event, Progress, Refused, Request, Vector};
pub use slots::SlotText;

pub use trine::generate::{Token, TokenLogprobs, TokenOdds, Told};

#[cfg(test)]
mod tests;
