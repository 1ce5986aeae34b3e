//! The processor: programs carried out operation by operation on the current pool.
//!
//! Every operation is dispatched here and defined in [`crate::ops`]. A value that is read for the last time leaves its
//! memory to the result.

mod choice;
mod experts;
mod mixing;
mod pass;
mod positions;
mod products;
mod profile;
mod run;
mod step;
mod values;
mod weights;

pub use profile::Profile;
pub use weights::{Cancelled, PassOptions, Processor, Ropes};
