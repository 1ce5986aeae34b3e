//! Products with any-precision rows: the kernels of [`trine_formats::anyprec`]'s definition.
//!
//! A row at `b` bits is `b` bit planes and a table of `2^b` centroids. A product reads these planes and no other,
//! puts the bits of 64 weights together, looks them up, and follows one of the two canonical orders, so that every
//! instruction set and every number of tokens gives the same bits:
//!
//! - with one token, codes become products while they are in registers;
//! - with more, a row is looked up once into memory that stays in the cache, and all tokens run over it.
//!
//! Activations are arranged once for all matrices of the same width that share them: [`Arrangement`].

use crate::Isa;
#[cfg(target_arch = "x86_64")]
use crate::Level;
#[cfg(target_arch = "x86_64")]
use crate::aligned::AlignedBytes;

mod act;
pub mod packed;
mod rows;
pub(crate) mod scalar;
pub mod sparse;

pub(crate) use act::quantize_block;
pub use act::{Arrangement, NumberPath, in_blocks};
pub use rows::PlaneRows;

/// True if `isa` has the kernels of `packed` rows.
pub fn reads_packed(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa.has(Level::Avx2);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = isa;
        false
    }
}

/// Memory for rows that were looked up, aligned to 64.
#[cfg(target_arch = "x86_64")]
pub(crate) type RowMemory = AlignedBytes;
