//! Kernels of the packed layouts.

pub(in crate::arch::x86_64) use crate::arch::x86_64::ahead::{NoPrefetch, PrefetchDistance, with_prefetch};
use crate::shared::packed::{Layout, dword};

mod avx2;
mod block32;
mod block32_tiles;
mod dwords;
mod half;
pub(in crate::arch::x86_64) mod half_levels;
pub(in crate::arch::x86_64) mod half_limbs;
mod half_tiles;
mod ik_levels;
mod k_quants;
mod k_tiles;
mod level_bytes;
mod level_lookup;
mod level_tiles;
mod levels;
mod lookup;
mod q2_k;
mod sets;
mod t2;
mod t5;
mod ternary_bytes;
mod ternary_sums;
mod ternary_tiles;
mod trits;
mod ymm;
mod zmm;

/// All packed layouts; of those of one instruction set, the better stand first.
pub(super) const LAYOUTS: &[&[Layout]] = &[
    ternary_tiles::TRITS,
    ternary_tiles::TWO_BITS,
    half_tiles::LAYOUTS,
    block32_tiles::LAYOUTS,
    k_tiles::LAYOUTS,
    level_tiles::LAYOUTS,
    t5::LAYOUTS,
    t2::LAYOUTS,
    block32::LAYOUTS,
    block32::NESTED,
    block32::SIX_BITS,
    k_quants::LAYOUTS,
    q2_k::LAYOUTS,
    level_bytes::LAYOUTS,
    level_bytes::OF_IK,
    half::LAYOUTS,
    avx2::t2::PLAIN,
    avx2::t2::BY_VNNI,
    avx2::q2_k::LAYOUTS,
    avx2::levels::LAYOUTS,
    avx2::levels::OF_IK,
];

/// Layouts whose products are looked up, element by element and bit by bit.
pub(super) const LOOKUPS: &[&[Layout]] = &[
    lookup::TL1_512,
    lookup::TL2_512,
    lookup::QUATERNARY_512,
    lookup::BITWISE_512,
    lookup::TL1,
    lookup::TL2,
    lookup::QUATERNARY,
    lookup::BITWISE,
];

/// Layouts whose kernels multiply tiles in memory instead of the processor's, for tests on any processor.
#[cfg(test)]
pub(crate) fn software_layouts() -> impl Iterator<Item = &'static Layout> {
    let all = [
        ternary_tiles::software::LAYOUTS,
        half_tiles::software::LAYOUTS,
        block32_tiles::software::LAYOUTS,
        k_tiles::software::LAYOUTS,
        level_tiles::software::LAYOUTS,
    ];
    all.into_iter().flatten()
}
