//! Five ternary digits to a byte, unpacked to a byte per weight: lines of [`super::t2_bytes`] without the way over two bits.

use std::arch::x86_64::*;

use super::t2;
use super::t5::{CHUNKS, Lookup, digits, dword_of, either};

/// The digits of 16 rows, chunks 128 bytes apart, as bytes: line k has columns 4k .. 4k + 4 of every row. `LOWER`: weights,
/// which are digits less 1, instead of digits.
///
/// # Safety
/// AVX-512 F, BW and VBMI; 13 chunks at `from`, room for 64 lines at `to`, which is aligned to 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn unpack<const LOWER: bool>(lookup: Lookup, from: *const u8, to: *mut u8) {
    let one = _mm512_set1_epi8(i8::from(LOWER));
    // Digits in the lowest bits of their bytes, and those two bits further up, by a lookup.
    let lower = |digit| {
        if LOWER {
            _mm512_sub_epi8(digit, one)
        } else {
            digit
        }
    };
    let [a, b, c] = [0i8, 1, 2].map(|digit| i32::from((digit - i8::from(LOWER)).cast_unsigned()));
    let second = _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, 0));
    for c in 0..CHUNKS {
        // SAFETY: 13 chunks.
        let [f, g] = lookup.digits(unsafe { t2::load(from.add(128 * c)) });
        let planes = [
            lower(_mm512_and_si512(f, t2::mask(0))),
            _mm512_shuffle_epi8(second, either(f, g, t2::mask(1))),
            lower(_mm512_srli_epi16::<4>(either(f, g, t2::mask(2)))),
            lower(_mm512_and_si512(g, t2::mask(0))),
            lower(_mm512_srli_epi16::<6>(_mm512_and_si512(g, t2::mask(3)))),
        ];
        for (t, plane) in planes.into_iter().enumerate().take(digits(c)) {
            // SAFETY: a digit belongs to one of 64 dwords of columns.
            unsafe { _mm512_store_si512(to.add(64 * dword_of(c, t)).cast(), plane) }
        }
    }
}
