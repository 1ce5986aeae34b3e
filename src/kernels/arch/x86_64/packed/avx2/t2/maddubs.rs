//! Products of bytes by `maddubs`, which sums pairs of them in 16 bits.
//!
//! Codes are 0 .. 3, or four times that: each result is at most 2 * 12 * 128 = 3072 in magnitude, so the eight of four
//! chunks fit; the 32 results of a unit of plain codes, 768 each at most, fit as well.

use std::arch::x86_64::*;

use super::super::super::PrefetchDistance;
use super::super::super::ymm::Ymm;
use super::{DWORDS, PLANES, Products, Sums, Tile, UNIT, UNIT_UNPACKED, VECTORS, place};
use crate::arch::x86_64::rows::lanes::Lanes;
use crate::proof::Avx2;

/// Pairs of 16-bit sums, times `by`, added to 32-bit ones.
#[inline]
#[target_feature(enable = "avx2")]
fn widen(sum: __m256i, pairs: __m256i, by: i16) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(by)))
}

impl Products for Avx2 {
    const FEW: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn add_unit<const T: usize, const V: usize, const REVERSED: bool>(
        w: *const u8,
        q: [*const u8; T],
        ahead: impl PrefetchDistance,
        sums: &mut [Sums; T],
    ) {
        let (low, second) = (_mm256_set1_epi8(3), _mm256_set1_epi8(12));
        for first in (0..VECTORS).step_by(V) {
            for chunks in [0, 4] {
                let zero = _mm256_setzero_si256();
                let (mut plain, mut fourfold) = ([[zero; V]; T], [[zero; V]; T]);
                for c in chunks..chunks + 4 {
                    let y: [[__m256i; PLANES]; T] = std::array::from_fn(|t| {
                        let at = |s| q[t].wrapping_add(4 * place::<REVERSED>(s, c));
                        // SAFETY: a unit has 32 dwords of activations.
                        std::array::from_fn(|s| unsafe { Ymm::broadcast(at(s)) })
                    });
                    for v in 0..V {
                        if (first + v) % 2 == 0 {
                            ahead.line(w.wrapping_add(128 * c + 32 * (first + v)));
                        }
                        // SAFETY: a unit has eight chunks of four vectors.
                        let x = unsafe { Ymm::load(w.add(128 * c + 32 * (first + v))) };
                        let high = _mm256_srli_epi16::<4>(x);
                        let planes = [
                            _mm256_and_si256(x, low),
                            _mm256_and_si256(x, second),
                            _mm256_and_si256(high, low),
                            _mm256_and_si256(high, second),
                        ];
                        for t in 0..T {
                            let add = |sum, s: usize| _mm256_add_epi16(sum, _mm256_maddubs_epi16(planes[s], y[t][s]));
                            plain[t][v] = add(add(plain[t][v], 0), 2);
                            fourfold[t][v] = add(add(fourfold[t][v], 1), 3);
                        }
                    }
                }
                for t in 0..T {
                    for v in 0..V {
                        let sum = widen(sums[t][first + v], plain[t][v], 4);
                        sums[t][first + v] = widen(sum, fourfold[t][v], 1);
                    }
                }
            }
        }
    }
}

impl<const T: usize> Tile<T> for Avx2 {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn multiply(bytes: *const u8, units: usize, q: *const u8, stride: usize) -> [[__m256i; 2]; T] {
        let mut sums = [[_mm256_setzero_si256(); 2]; T];
        for u in 0..units {
            let mut pairs = [[_mm256_setzero_si256(); 2]; T];
            for k in 0..DWORDS {
                // SAFETY: 32 dwords of 32 rows, and 32 of activations.
                unsafe {
                    let w = bytes.add(UNIT_UNPACKED * u + 128 * k);
                    let w = [Ymm::load(w), Ymm::load(w.add(32))];
                    for (t, pairs) in pairs.iter_mut().enumerate() {
                        let y = Ymm::broadcast(q.add(stride * t + UNIT * u + 4 * k));
                        for (pairs, w) in pairs.iter_mut().zip(w) {
                            *pairs = _mm256_add_epi16(*pairs, _mm256_maddubs_epi16(w, y));
                        }
                    }
                }
            }
            for (sums, pairs) in sums.as_flattened_mut().iter_mut().zip(pairs.as_flattened()) {
                *sums = widen(*sums, *pairs, 1);
            }
        }
        sums
    }
}
