//! The code of [`super::t5`]: five digits to a byte, and the lookups that take them apart.

use std::arch::x86_64::*;
use std::sync::LazyLock;

use super::PrefetchDistance;
use super::ternary_sums::{load, mask};

pub(super) const CHUNKS: usize = 13;

/// Bytes of the digits of a block.
pub(super) const DIGITS: usize = CHUNKS * 2 * 64;

/// Values of the last two digits (or the middle two) besides (2, 2).
const PAIRS: [(u8, u8); 8] = [(0, 0), (0, 2), (2, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1)];

pub(super) fn pair(first: u8, second: u8) -> Option<u8> {
    let j = PAIRS.iter().position(|&p| p == (first, second))?;
    Some(j as u8)
}

/// The byte of five digits.
pub(super) fn encode([a0, a1, a2, b0, b1]: [u8; 5]) -> u8 {
    match (pair(b0, b1), pair(a1, a2)) {
        (Some(j), _) => a0 + 3 * a1 + 9 * a2 + 32 * j,
        (None, Some(j)) => 28 + a0 + 32 * j,
        (None, None) => 31 + 32 * a0,
    }
}

/// The tables of the two lookups, by the low seven bits of a byte and by its bits from 2 on.
struct Tables {
    first: [u8; 128],
    second: [u8; 64],
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables {
    first: std::array::from_fn(|i| match i as u8 % 32 {
        a @ 0..=26 => a % 3 + 4 * (a / 3 % 3) + 16 * (a / 9),
        a @ 28..=30 => a - 28,
        31 => i as u8 / 32 % 4 + 4 * 2 + 16 * 2,
        _ => 0,
    }),
    second: std::array::from_fn(|i| {
        let (first, second) = PAIRS[i / 8];
        match i % 8 {
            7 => 0x82 + 4 * first + 16 * second,
            _ => first + 64 * second,
        }
    }),
});

/// Activation dword of digit t of chunk c.
pub(super) const fn dword_of(c: usize, t: usize) -> usize {
    match c {
        0..8 => c + 8 * t,
        8..12 => 40 + (c - 8) + 4 * t,
        _ => 60 + t,
    }
}

/// Digits of a chunk.
pub(super) const fn digits(c: usize) -> usize {
    if c < 12 { 5 } else { 4 }
}

/// The two lookups.
#[derive(Clone, Copy)]
pub(super) struct Lookup {
    first: [__m512i; 2],
    second: __m512i,
}

impl Lookup {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn new() -> Lookup {
        let t = &*TABLES;
        // SAFETY: tables of 128 and 64 bytes.
        unsafe {
            Lookup { first: [load(t.first.as_ptr()), load(t.first.as_ptr().add(64))], second: load(t.second.as_ptr()) }
        }
    }

    /// a0 + 4 a1 + 16 a2 and b0 + 64 b1, with a1 and a2 in the second where (b0, b1) is (2, 2).
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn digits(&self, w: __m512i) -> [__m512i; 2] {
        [
            _mm512_permutex2var_epi8(self.first[0], w, self.first[1]),
            // The bits that come in from the neighbouring byte are above the index.
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(w), self.second),
        ]
    }
}

/// `(f | g) & mask`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn either(f: __m512i, g: __m512i, mask: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xA8>(f, g, mask)
}

/// The digits of 16 rows, chunks 128 bytes apart, as bytes: line k has columns 4k .. 4k + 4 of every row. `LOWER`:
/// weights, which are digits less 1, instead of digits.
///
/// # Safety
/// AVX-512 F, BW and VBMI; 13 chunks at `from`, room for 64 lines at `to`, which is aligned to 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn unpack<const LOWER: bool>(lookup: Lookup, from: *const u8, ahead: usize, to: *mut u8) {
    let one = _mm512_set1_epi8(i8::from(LOWER));
    // Digits in the lowest bits of their bytes, and those two bits further up, by a lookup.
    let lower = |digit| {
        if LOWER { _mm512_sub_epi8(digit, one) } else { digit }
    };
    let [a, b, c] = [0i8, 1, 2].map(|digit| i32::from((digit - i8::from(LOWER)).cast_unsigned()));
    let second = _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, 0));
    for c in 0..CHUNKS {
        ahead.line(from.wrapping_add(128 * c));
        // SAFETY: 13 chunks.
        let [f, g] = lookup.digits(unsafe { load(from.add(128 * c)) });
        let planes = [
            lower(_mm512_and_si512(f, mask(0))),
            _mm512_shuffle_epi8(second, either(f, g, mask(1))),
            lower(_mm512_srli_epi16::<4>(either(f, g, mask(2)))),
            lower(_mm512_and_si512(g, mask(0))),
            lower(_mm512_srli_epi16::<6>(_mm512_and_si512(g, mask(3)))),
        ];
        for (t, plane) in planes.into_iter().enumerate().take(digits(c)) {
            // SAFETY: a digit belongs to one of 64 dwords of columns.
            unsafe { _mm512_store_si512(to.add(64 * dword_of(c, t)).cast(), plane) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_243_codes_differ_and_the_tables_give_their_digits_back() {
        let mut seen = [false; 256];
        for v in 0..243u8 {
            let d = [v % 3, v / 3 % 3, v / 9 % 3, v / 27 % 3, v / 81];
            let byte = encode(d);
            assert!(!std::mem::replace(&mut seen[usize::from(byte)], true));
            let f = TABLES.first[usize::from(byte & 127)];
            let g = TABLES.second[usize::from(byte >> 2)];
            let digits = [f & 3, (f | g) >> 2 & 3, (f | g) >> 4 & 3, g & 3, g >> 6];
            assert_eq!(digits, d, "{byte}");
        }
    }
}
