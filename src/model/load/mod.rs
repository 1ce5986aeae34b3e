//! Tensors by name and shape, with every problem collected before any is reported.

mod connection;
mod drafter;
mod ends;
mod factors;
mod loader;
mod projections;
mod widely;

pub use super::lora::LowRank;
pub use connection::{Connection, Gated, Way, Weighed};
pub use drafter::{AssistantEnds, DrafterEnds};
pub use ends::{Ends, SharedEnds, ends, sections};
pub use loader::{Loader, Special};
pub use projections::{Linear, Stacked};
