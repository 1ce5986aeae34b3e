//! Element-wise operations and soft-max in vectors, each with the bits of its scalar definition.
//!
//! Multiplications and additions are never fused. The definitions are here too: other instruction
//! sets run them as they are, and the tests compare with them.

#[cfg(target_arch = "x86_64")]
mod exp;
mod soft_max;

pub use soft_max::soft_max;
