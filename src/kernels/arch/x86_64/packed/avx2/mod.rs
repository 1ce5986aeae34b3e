//! Kernels of the packed layouts for AVX2: the same bytes, a line of 64 read as two vectors of eight rows.

mod block32;
mod k_quants;
mod level_lookup;
pub(super) mod levels;
pub(super) mod q2_k;
pub(super) mod t2;
mod vnni;
