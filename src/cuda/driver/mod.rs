//! NVIDIA's driver: the library that a machine with a GPU has, opened when a GPU is asked for.
//!
//! Nothing is linked, so programs build and start where no driver is. What is missing, too old or too weak is an error
//! of one line before anything runs: the library, a function of it, the release that reads the kernels' PTX, the
//! device, its compute capability.
//!
//! The crate cudarc, the usual way from Rust to this library, is not used, for two reasons. It makes the driver's
//! answers values of a Rust `enum` with the codes of one release, and a driver may answer with a code of a later one,
//! which no such value may hold; and it panics where a function is missing. What trine calls is a handful of functions,
//! declared in `library`; opening the library and finding them there is the crate libloading's work.

mod context;
mod device;
mod error;
mod graph;
mod library;
mod mark;
#[cfg(not(any(unix, windows)))]
mod no_library;
mod open;

pub use context::Context;
pub use device::{Clocks, Gpu, Peaks};
pub use error::DriverError;
pub use graph::Graph;
pub use mark::Mark;
pub use open::Memory;
