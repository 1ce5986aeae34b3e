//! Attention's exact sums in tiles of AMX: both sides as whole numbers of signed bytes.
//!
//! The definition adds exact products to an `f64`, one by one. Both factors are whole multiples of a unit, so the sum
//! is an integer in units. Where a bound proves that no sum on the way exceeds 2^53 of them, the definition rounds
//! nothing and its result is this integer; elsewhere a bound of its rounding decides whether both round to the same
//! `f32`, and the row is open otherwise: its caller adds in order.
//!
//! **Digits.** A number is up to four digits from -128 to 127, lowest first, so that all products of digits are of one
//! kind. Digits `a` of the left and `b` of the right side meet in level `a + b`. On the left the digits of a row stand
//! one behind the other, on the right the highest first: a level is then the product of one stretch of either side, and
//! steps of 64 run across the borders of digits. What a step reads beyond a stretch meets zeros: the left side ends in
//! zeros, or the right one does.
//!
//! ```text
//! left     rows of 16: [digit 0..4][k], zeros
//! right    16 lanes in lines of 64 bytes: [digit 3..=0][k / 4][16 lanes][4 steps], zeros
//! ```

mod digits;
pub mod left;
pub mod outputs;
pub mod right;
pub mod rows;
pub mod scores;
#[cfg(test)]
mod tests;

use std::arch::x86_64::*;

use crate::arch::x86_64::tiles::{ROW, ROWS, TILE, Tiles};
pub use digits::DIGITS;
use digits::{Bits, balanced, digits};

/// Levels, at most.
const LEVELS: usize = 2 * DIGITS - 1;
/// Sums of a tile.
const SUMS: usize = ROWS * ROWS;
/// Sums of both tiles of all levels.
const BUFFER: usize = 2 * LEVELS * SUMS;
/// Every integer up to here is an `f64`; a little less, so that the bound may be rounded.
const EXACT: f64 = (1u64 << 53) as f64 * (1.0 - 1e-9);
/// 2^-53, and a quarter more for the rounding of the bounds themselves.
const ROUNDING: f64 = 1.25 / (1u64 << 53) as f64;

/// A tile of sixteen rows of the left side by two of sixteen lanes of the right one.
#[derive(Clone, Copy)]
struct Product {
    left: *const u8,
    left_stride: usize,
    left_digits: usize,
    right: *const u8,
    right_digits: usize,
    /// Steps of a digit, a multiple of 16.
    k: usize,
    /// Steps that count: all, or of a multiple of 64 those up to another.
    seen: usize,
}

impl Product {
    /// Levels that there are.
    fn levels(self) -> usize {
        self.left_digits + self.right_digits - 1
    }

    /// First digit of the left side, stretches and steps of each.
    #[inline(always)]
    fn stretch(self, level: usize) -> (usize, usize, usize) {
        let first = (level + 1).saturating_sub(self.right_digits);
        let pairs = (level + 1).min(self.left_digits) - first;
        match self.seen == self.k {
            true => (first, 1, (pairs * self.k).div_ceil(ROW)),
            false => (first, pairs, self.seen / ROW),
        }
    }

    /// All levels to a buffer, those of the second sixteen lanes behind the others.
    ///
    /// # Safety
    /// AVX-512; both sides and the buffer are there, and tiles of 16 rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn multiply<T: Tiles>(self, t: &mut T, buffer: *mut i32) {
        macro_rules! level {
            ($level:expr, $one:literal, $other:literal) => {
                let (first, runs, steps) = self.stretch($level);
                t.clear::<$one>();
                t.clear::<$other>();
                let left = self.left.add(first * self.k);
                let right = self.right.add((DIGITS - 1 + first - $level) * 16 * self.k);
                for run in 0..runs {
                    for step in 0..steps {
                        let left = left.add(run * self.k + step * ROW);
                        let right = right.add(run * 16 * self.k + step * TILE);
                        t.load::<0>(left, self.left_stride);
                        t.load::<1>(right, ROW);
                        t.load::<2>(right.add(right::half(self.k)), ROW);
                        t.dot_signed::<$one, 0, 1>();
                        t.dot_signed::<$other, 0, 2>();
                    }
                }
                let to = buffer.add($level * SUMS);
                t.store::<$one>(to);
                t.store::<$other>(to.add(LEVELS * SUMS));
            };
        }
        // SAFETY: the caller has what is read and written.
        unsafe {
            for level in 0..self.levels() {
                if level % 2 == 0 {
                    level!(level, 3, 4);
                } else {
                    level!(level, 5, 6);
                }
            }
        }
    }
}

/// Two times eight sums rounded.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn sixteen(sums: [__m512d; 2]) -> __m512 {
    let low = _mm512_castps256_ps512(_mm512_cvtpd_ps(sums[0]));
    _mm512_insertf32x8::<1>(low, _mm512_cvtpd_ps(sums[1]))
}

/// The same of sums that may be off by `errors`; false where that makes a difference.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn sixteen_certain(sums: [__m512d; 2], errors: [__m512d; 2]) -> (__m512, bool) {
    let least = sixteen([0, 1].map(|i| _mm512_sub_pd(sums[i], errors[i])));
    let most = sixteen([0, 1].map(|i| _mm512_add_pd(sums[i], errors[i])));
    let bits = [least, most].map(|x| _mm512_castps_si512(x));
    (least, _mm512_cmpneq_epi32_mask(bits[0], bits[1]) == 0)
}
