//! Executors: what carries a [`Program`](crate::program::Program) out.
//!
//! The [`Processor`] has every operation. A GPU ([`Offload`]) takes the last blocks of a model where it has a kernel for
//! each of their operations, which is found by asking it; so does [`gradient`], which runs programs backwards.

#[cfg(feature = "cuda")]
mod device;
pub mod gradient;
#[cfg(not(feature = "cuda"))]
mod left_out;
mod processor;

#[cfg(feature = "cuda")]
pub(crate) use device::Offloaded;
#[cfg(feature = "cuda")]
pub use device::{Angles, Offload, Recorded, Recording, Start};
#[cfg(not(feature = "cuda"))]
pub use left_out::Offload;
pub use processor::{Cancelled, PassOptions, Processor, Profile, Ropes};
