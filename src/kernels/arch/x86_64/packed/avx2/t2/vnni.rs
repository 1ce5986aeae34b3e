//! Products by AVX-VNNI: see [`super::super::vnni`].

use std::arch::x86_64::*;

use super::super::super::PrefetchDistance;
use super::super::super::ymm::Ymm;
use super::super::vnni::{self, EightDwords, dpbusd};
use super::{DWORDS, Products, ROWS, Sums, Tile, UNIT, UNIT_UNPACKED, VECTORS, place};
use crate::arch::x86_64::rows::lanes::Lanes;
use crate::proof::AvxVnni;

const _: () = assert!(4 * ROWS == vnni::LINE);

impl Products for AvxVnni {
    const FEW: usize = 4;

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
            let zero = _mm256_setzero_si256();
            let (mut plain, mut fourfold) = ([[zero; V]; T], [[zero; V]; T]);
            for c in 0..8 {
                // SAFETY: the processor has the instruction; a unit has eight chunks of four vectors, and 32 dwords of
                // activations.
                unsafe {
                    for v in 0..V {
                        if (first + v) % 2 == 0 {
                            ahead.line(w.wrapping_add(128 * c + 32 * (first + v)));
                        }
                        let x = Ymm::load(w.add(128 * c + 32 * (first + v)));
                        let high = _mm256_srli_epi16::<4>(x);
                        for (s, x) in [(0, x), (2, high)] {
                            let codes = _mm256_and_si256(x, low);
                            let above = _mm256_and_si256(x, second);
                            for t in 0..T {
                                let y = |s| Ymm::broadcast(q[t].add(4 * place::<REVERSED>(s, c)));
                                plain[t][v] = dpbusd(plain[t][v], codes, y(s));
                                fourfold[t][v] = dpbusd(fourfold[t][v], above, y(s + 1));
                            }
                        }
                    }
                }
            }
            for t in 0..T {
                for v in 0..V {
                    let sum = _mm256_add_epi32(_mm256_slli_epi32::<2>(plain[t][v]), fourfold[t][v]);
                    sums[t][first + v] = _mm256_add_epi32(sums[t][first + v], sum);
                }
            }
        }
    }
}

impl<const T: usize> Tile<T> for AvxVnni
where
    AvxVnni: EightDwords<T>,
{
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn multiply(bytes: *const u8, units: usize, q: *const u8, stride: usize) -> [[__m256i; 2]; T] {
        let mut sums = [[_mm256_setzero_si256(); 2]; T];
        for k in (0..units * DWORDS).step_by(8) {
            // SAFETY: as many dwords of 16 rows and of activations.
            sums = unsafe { Self::add(bytes.add(vnni::LINE * k), q.add(4 * k), stride, sums) };
        }
        sums
    }
}

const _: () = assert!(UNIT_UNPACKED == vnni::LINE * DWORDS && UNIT == 4 * DWORDS);
