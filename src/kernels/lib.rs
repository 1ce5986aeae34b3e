//! Matrix kernels: SIMD versions of each type's `dot_ref`, behind one table.
//!
//! Every kernel gives the bits of `dot_ref` for every byte pattern of weights and activations (a NaN
//! stays a NaN; its payload is not promised). Integer sums are exact in any order, so they are free;
//! each output keeps its own float chain, in the reference's order and association, with multiply
//! and add rounded apart. FMA appears only where the product is exact (f16 x f16 in f64).
//!
//! Two regimes: with few tokens a row is read once, front to back; with more, panels of 8 or 16 rows
//! are unpacked once into interleaved lines (lanes = rows) and all tokens run over them. Preparing
//! the activations costs about as much as 8 to 16 rows, so with many tokens call with 64 or more rows.

// Processors without vectors of ours run the portable loops alone.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, unused_imports, unused_variables)
)]

pub use aligned::{AlignedBytes, Floats};
pub use isa::{Isa, IsaError, Level};
pub use proof::Needs;
pub use rows::{MatRows, compare_rows, decode_rows, encode_rows, mat_rows, quantize_act};
pub use scalar::{CompareRows, QuantizeAct};

#[macro_use]
mod sets;

mod aligned;
mod arch;
pub mod bitplane;
pub mod elements;
pub mod gemm;
pub mod halves;
mod isa;
mod line;
pub mod math;
pub mod packed;
pub mod probe;
mod proof;
mod rows;
mod scalar;
mod shared;
mod simd;
mod sizes;
pub mod ternary;
#[doc(hidden)]
pub mod testing;
pub mod widely;

#[cfg(test)]
mod encode_tests;
#[cfg(test)]
mod tests;
