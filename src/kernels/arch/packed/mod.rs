//! Packed layouts whose products are written once for the vectors of every instruction set.

pub(crate) mod half;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod lookup;
