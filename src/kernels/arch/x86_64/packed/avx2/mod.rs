//! Kernels of the packed layouts for AVX2: the same bytes, a line of 64 read as two vectors of eight rows.

use crate::packed::Layout;
use memory::{broadcast, broadcast_float, by_tokens, halves, load, store};

mod block32;
mod k16;
mod lanes;
mod levels;
mod memory;
mod q2_k;
mod q3_k;
mod q4_k;
mod q6_k;
mod t2;
mod vnni;

/// The rows of the kernels in this folder.
pub(super) static LAYOUTS: &[&[Layout]] = &[
    t2::PLAIN,
    t2::BY_VNNI,
    block32::PLAIN,
    block32::BY_VNNI,
    block32::NESTED,
    block32::NESTED_BY_VNNI,
    q2_k::LAYOUTS,
    q3_k::LAYOUTS,
    q4_k::LAYOUTS,
    q6_k::LAYOUTS,
    levels::LAYOUTS,
];
