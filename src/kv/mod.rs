//! Keys and values in pages that sequences share: half floats, or what [`CacheTypes`] asks for.
//!
//! A page holds the keys and values of all layers for some consecutive positions of one sequence, laid out for the
//! loops of [`crate::kernels::halves`]. A [`Sequence`] is a list of pages and a length. Sequences that begin alike
//! share the same pages by reference; a sequence that writes into a shared page copies its beginning first. Pages come
//! from a [`PagePool`] with a budget, which grants all pages of a step before anything is computed.
//!
//! The location of a position decides nothing but its address: attention reads the same f16 numbers in the same order
//! whichever pages hold them.

mod budget;
mod elsewhere;
mod encoded;
mod keeper;
mod layout;
mod page;
mod placement;
mod rotation;
mod saved;
mod sequence;
mod source;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod types;

use crate::kernels::halves::LANES;

pub use budget::{OutOfPages, PagePool};
pub use keeper::Keeper;
pub use layout::{KvHeads, LayerLayout, PageLayout};
pub use page::{EncodedHead, HeadPage};
pub use placement::Placement;
pub(crate) use rotation::LEAST as LEAST_TURNED;
pub use sequence::{Mark, PageRef, Sequence, SequenceRows};
pub use source::Source;
pub use state::{StateElsewhere, StatePlace};
pub use store::store;
pub use types::CacheTypes;

/// Positions of a tile, the unit of the layout.
pub const TILE: usize = LANES;
