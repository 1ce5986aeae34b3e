//! Executors: what carries a [`Program`](crate::program::Program) out.
//!
//! The [`Processor`] has every operation. A GPU ([`Offload`]) takes the last blocks of a model where it has a kernel for
//! each of their operations, which is found by asking it; so does [`gradient`], which runs programs backwards.

mod behind;
#[cfg(feature = "cuda")]
mod device;
pub mod gradient;
#[cfg(not(feature = "cuda"))]
mod left_out;
mod processor;

#[cfg(not(feature = "cuda"))]
use left_out as device;

pub use behind::Behind;
pub use device::{DeviceError, Gpu, Limits, Offload, Offloaded, OnDevice, Recording, Running, Sharing, check};
pub use processor::{Cancelled, PassOptions, Processor, Profile, Ropes};
