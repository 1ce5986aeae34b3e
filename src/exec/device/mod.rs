//! A GPU that carries out the last blocks of a model, behind those that stay on the processor.

mod experts;
mod offload;
mod record;
mod tape;

pub(crate) use offload::Offloaded;
pub use offload::{Angles, Offload, Recorded, Recording, Start};
