//! Kernels for WebAssembly with vectors of 128 bits.
//!
//! There is no asking at run time: a module with an instruction that its host does not know is refused as a whole. So
//! these kernels are part of programs that are compiled with `-C target-feature=+simd128`, and then are always there.

use super::kernels::Kernels;

mod packed;

/// Rows as files have them are multiplied, and encoded, by the definitions, of which the compiler makes vectors.
pub(super) const KERNELS: Kernels = Kernels { layouts: packed::LAYOUTS, ..Kernels::NONE };
