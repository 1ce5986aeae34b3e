//! Executors: what carries a [`Program`](crate::program::Program) out.
//!
//! The [`Processor`] has every operation. A GPU ([`Offload`]) takes the last blocks of a model where it has a kernel for
//! each of their operations, which is found by asking it.

mod device;
mod processor;

pub(crate) use device::Offloaded;
pub use device::{Angles, Offload, Recorded, Recording, Start};
pub use processor::{Cancelled, PassOptions, Processor, Profile};
