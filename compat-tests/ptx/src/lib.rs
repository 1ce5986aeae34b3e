//! An emulator of PTX: it reads the text that a driver gets and executes it warp by warp, without a GPU.
//!
//! It is what holds kernels to the CPU's bits where no GPU is at hand, and it is stricter than hardware: what would
//! often go well there is a [`Fault`] here, in the first run that meets it. Faults are races between threads that no
//! barrier orders, asynchronous copies that are read before they were waited for, bytes and registers that nobody
//! wrote, addresses outside of buffers, shared memory accesses that cost more than they should, and `.aligned`
//! instructions in a part of a warp.
//!
//! - [`Module::parse`] knows the instructions of `decode` and `scalar`; any other is an error that names it, so
//!   that a new compiler cannot bring in one whose meaning nobody wrote down.
//! - [`Device`] holds buffers, each in a range of addresses of its own, and launches kernels; [`Schedule`] says in
//!   which order warps take their turns.
//! - Asynchronous copies arrive as late as they may: when their thread waits for them.
//! - Integer products (`mma` on bytes) are exact. Those on halves are added in double precision and rounded once;
//!   hardware adds in another order and with fewer bits, so results of that form are compared with a tolerance.
//! - Single precision is IEEE 754 to the nearest even, without contraction, and NaN is 0x7fffffff, as PTX has it.
//!   Kernels that use nothing but that and integers have the bits of a GPU.
//!
//! Blocks run one after the other: kernels may not wait for one another's blocks. What a block wrote another may read
//! where fences and an atomic operation order the two. Source of all meanings: PTX ISA 9.0.

mod access;
mod block;
mod collective;
mod decode;
mod device;
mod driver;
mod fault;
mod instruction;
mod launch;
pub mod lint;
mod memory;
mod mma;
mod module;
mod operand;
mod order;
mod scalar;
mod shadow;
mod shared;
mod token;
mod warp;

pub use device::Device;
pub use driver::{Emulated, Work, checked_in};
pub use fault::{Fault, Kind, ParseError};
pub use launch::{Argument, Buffer, Launch, Report, Schedule};
pub use module::{Kernel, Module};
