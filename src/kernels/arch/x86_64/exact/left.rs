//! The left side: rows of queries or of probabilities.

use std::arch::x86_64::*;

use super::{Bits, DIGITS, balanced, digits};
use crate::arch::x86_64::tiles::ROW;

/// Norms are no less than they should be for all that single precision rounds: one addition in 2^-24 for every 16
/// steps, and a few more.
pub const ABOVE: f32 = 1.0 + 1e-5;

/// Bytes from row to row: an odd number of lines, so that sixteen rows are in as many sets of the cache.
pub const fn stride(k: usize) -> usize {
    ((DIGITS * k / ROW + 1) | 1) * ROW
}

/// Digits and bounds of a row.
#[derive(Clone, Copy)]
pub struct Row {
    pub unit: f32,
    /// Norm of the row, in units.
    pub norm: f32,
    /// `None`: the row has none, but zeros.
    pub digits: Option<usize>,
}

/// Values, rounded to half floats, as digits, and zeros behind them.
///
/// # Safety
/// AVX-512; whole sixteens, and room for a row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn put(x: &[f32], to: *mut u8) -> Row {
    let k = x.len();
    let sixteens = x.as_chunks::<16>().0;
    let mut bits = Bits::none();
    for x in sixteens {
        bits.add::<false>(rounded(x));
    }
    let greatest = f32::from_bits(_mm512_reduce_max_epu32(bits.greatest));
    let across = |x: __m512i| _mm512_set1_epi32(_mm512_reduce_or_epi32(x));
    let bits = Bits { small: across(bits.small), large: across(bits.large), ..bits };
    let unit = _mm512_cvtss_f32(bits.units());
    // What follows the digits, and is read with them.
    let rest = DIGITS * 16 * sixteens.len();
    // SAFETY: the caller has room for a row, `stride(k)` bytes, which begins with `rest` bytes of digits.
    unsafe { to.add(rest).write_bytes(0, stride(k) - rest) };
    let Some(digits) = digits(greatest / unit) else {
        // SAFETY: as before.
        unsafe { to.write_bytes(0, rest) };
        return Row { unit: 1.0, norm: 0.0, digits: None };
    };
    let scale = _mm512_set1_ps(1.0 / unit);
    let mut squares = _mm512_setzero_ps();
    for (i, x) in sixteens.iter().enumerate() {
        let x = _mm512_mul_ps(rounded(x), scale);
        squares = _mm512_fmadd_ps(x, x, squares);
        // SAFETY: sixteen bytes of each digit.
        unsafe { put_sixteen(_mm512_cvtps_epi32(x), to.add(16 * i), k) };
    }
    Row { unit, norm: _mm512_reduce_add_ps(squares).sqrt() * ABOVE, digits: Some(digits) }
}

/// Through half floats and back.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn rounded(x: &[f32; 16]) -> __m512 {
    // SAFETY: sixteen values.
    let x = unsafe { _mm512_loadu_ps(x.as_ptr()) };
    _mm512_cvtph_ps(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x))
}

/// Sixteen whole numbers, `k` bytes from digit to digit.
///
/// # Safety
/// AVX-512 F and BW; room for them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn put_sixteen(x: __m512i, to: *mut u8, k: usize) {
    let by_digit = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let x = _mm512_shuffle_epi8(balanced(x), _mm512_broadcast_i32x4(by_digit));
    let x = _mm512_permutexvar_epi32(order, x);
    // SAFETY: the caller has the room.
    unsafe {
        let to = |digit: usize| to.add(digit * k).cast();
        _mm_storeu_si128(to(0), _mm512_castsi512_si128(x));
        _mm_storeu_si128(to(1), _mm512_extracti32x4_epi32::<1>(x));
        _mm_storeu_si128(to(2), _mm512_extracti32x4_epi32::<2>(x));
        _mm_storeu_si128(to(3), _mm512_extracti32x4_epi32::<3>(x));
    }
}
