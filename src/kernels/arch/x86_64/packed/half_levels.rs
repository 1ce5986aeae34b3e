//! Levels: sums of the products of limbs that count the same, and what becomes of them.

use std::arch::x86_64::*;

use super::half_limbs::{HALF, STEP};
use crate::arch::x86_64::tiles::{ROWS, TILE, Tiles};

/// Sums of a tile.
pub const SUMS: usize = ROWS * HALF;

/// Sums of eight rows of one token from the levels, whose tiles follow each other.
///
/// # Safety
/// The processor has AVX-512 F; eight sums of each of `N` levels are readable, aligned to 32 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub unsafe fn value<const N: usize>(levels: *const i32) -> __m512d {
    let limb = _mm512_set1_pd(256.0);
    // SAFETY: the caller has eight sums of each level.
    let level = |l: usize| unsafe { _mm512_cvtepi32_pd(_mm256_load_si256(levels.add(l * SUMS).cast())) };
    // Three levels of 27 bits are exact in an f64; only their sum may have to be rounded.
    let low = _mm512_fmadd_pd(_mm512_fmadd_pd(level(2), limb, level(1)), limb, level(0));
    let mut high = level(N - 1);
    for l in (3..N - 1).rev() {
        high = _mm512_fmadd_pd(high, limb, level(l));
    }
    _mm512_fmadd_pd(high, _mm512_set1_pd(f64::from(1 << 24)), low)
}

/// Outputs of the 16 rows of a half; false when one of them may be another than that of the sum in order.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
pub fn round(sums: [__m512d; 2], errors: [__m512d; 2], unit: f64, units: &[f64; HALF], out: &mut [f32]) -> bool {
    let mut certain = true;
    let mut rows = [_mm256_setzero_ps(); 2];
    for i in 0..2 {
        // SAFETY: eight of sixteen units.
        let units = unsafe { _mm512_loadu_pd(units.as_ptr().add(8 * i)) };
        let unit = _mm512_mul_pd(units, _mm512_set1_pd(unit));
        let least = _mm512_mul_pd(_mm512_sub_pd(sums[i], errors[i]), unit);
        let most = _mm512_mul_pd(_mm512_add_pd(sums[i], errors[i]), unit);
        rows[i] = _mm512_cvtpd_ps(least);
        let same = _mm256_castps_si256(_mm512_cvtpd_ps(most));
        certain &= _mm256_cmpneq_epi32_mask(_mm256_castps_si256(rows[i]), same) == 0;
    }
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let row = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(rows[0]), rows[1]);
    assert!(out.len() == HALF);
    // SAFETY: as just checked.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), _mm512_permutexvar_ps(order, row)) };
    certain
}

/// The products of all limbs of 64 columns: `X` of the tokens, whose rows are `stride` apart, with `W` of the weights.
/// Level l is tile 2 + l.
///
/// # Safety
/// There are `X` limbs of the tokens and `W` of the weights, and the levels are cleared or in work.
#[inline(always)]
pub unsafe fn columns<T: Tiles, const W: usize, const X: usize>(
    t: &mut T,
    acts: *const u8,
    stride: usize,
    weights: *const u8,
) {
    macro_rules! act {
        ($limb:literal) => {
            t.load::<0>(acts.add($limb * STEP), stride)
        };
    }
    macro_rules! weight {
        ($limb:literal) => {
            t.load::<1>(weights.add($limb * TILE), STEP)
        };
    }
    // SAFETY: the caller has the limbs.
    unsafe {
        match (W, X) {
            (2, _) => {
                // Both limbs of the weights stay in tiles.
                weight!(0);
                t.load::<7>(weights.add(TILE), STEP);
                act!(0);
                t.dot_unsigned::<2, 0, 1>();
                t.dot_unsigned_by_signed::<3, 0, 7>();
                act!(1);
                t.dot_unsigned::<3, 0, 1>();
                t.dot_unsigned_by_signed::<4, 0, 7>();
                act!(2);
                if X == 3 {
                    t.dot_signed_by_unsigned::<4, 0, 1>();
                    t.dot_signed::<5, 0, 7>();
                } else {
                    t.dot_unsigned::<4, 0, 1>();
                    t.dot_unsigned_by_signed::<5, 0, 7>();
                    act!(3);
                    t.dot_signed_by_unsigned::<5, 0, 1>();
                    t.dot_signed::<6, 0, 7>();
                }
            }
            _ => {
                act!(0);
                weight!(0);
                t.dot_unsigned::<2, 0, 1>();
                weight!(1);
                t.dot_unsigned::<3, 0, 1>();
                weight!(2);
                t.dot_unsigned_by_signed::<4, 0, 1>();
                // The limb of the weights that was last is the first of the next.
                act!(1);
                t.dot_unsigned_by_signed::<5, 0, 1>();
                weight!(1);
                t.dot_unsigned::<4, 0, 1>();
                weight!(0);
                t.dot_unsigned::<3, 0, 1>();
                act!(2);
                if X == 3 {
                    t.dot_signed_by_unsigned::<4, 0, 1>();
                    weight!(1);
                    t.dot_signed_by_unsigned::<5, 0, 1>();
                    weight!(2);
                    t.dot_signed::<6, 0, 1>();
                } else {
                    t.dot_unsigned::<4, 0, 1>();
                    weight!(1);
                    t.dot_unsigned::<5, 0, 1>();
                    weight!(2);
                    t.dot_unsigned_by_signed::<6, 0, 1>();
                    act!(3);
                    t.dot_signed::<7, 0, 1>();
                    weight!(1);
                    t.dot_signed_by_unsigned::<6, 0, 1>();
                    weight!(0);
                    t.dot_signed_by_unsigned::<5, 0, 1>();
                }
            }
        }
    }
}
