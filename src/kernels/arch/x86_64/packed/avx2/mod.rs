//! Kernels of the packed layouts for AVX2: the same bytes, a line of 64 read as two vectors of eight rows.

use crate::packed::Layout;

mod block32;
mod k_quants;
mod levels;
mod q2_k;
mod t2;
mod vnni;

/// The rows of the kernels in this folder.
pub(super) static LAYOUTS: &[&[Layout]] = &[t2::PLAIN, t2::BY_VNNI, q2_k::LAYOUTS, levels::LAYOUTS];
