//! Forms, definitions and scaffolding that the kernels of all instruction sets share. They stand below the kernels; the
//! rooms beside this one choose a kernel, and stand above.

pub mod bitplane;
pub mod halves;
pub mod packed;
pub mod ternary;
pub mod widely;

/// Independent chains of a multiplication loop: more than latency times issue rate of any processor.
pub(crate) const CHAINS: usize = 12;

/// Entries of the table of GELU: one for every half float, and one that gathered pairs may touch.
pub(crate) const GELU_ENTRIES: usize = (1 << 16) + 1;
