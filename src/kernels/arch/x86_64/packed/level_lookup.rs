//! Levels of [`super::levels`] by their codes, with VBMI.
//!
//! A byte is looked up by its low six bits, in which a code stands among bits of its neighbours: tables that repeat what
//! does not depend on those need neither masks nor most of the shifts.

use std::arch::x86_64::*;

use super::levels::Levels;
use super::zmm::Zmm;
use crate::arch::x86_64::rows::lanes::Lanes;

/// The code of a byte, of which only six bits are looked at, for each table of a type with so many lines in a unit.
/// Codes of two bits begin at bit 0, 2 and 4, those of three at bit 0, 3 and 2, those of four at bit 0. Those of five are
/// the lowest four bits with bit 4, or with bit 5.
const fn code(lines: usize, table: usize, byte: usize) -> usize {
    match lines {
        2 => byte >> (2 * table) & 3,
        3 => byte >> [0, 3, 2][table] & 7,
        5 => byte & 15 | (byte >> [4, 5, 5][table] & 1) << 4,
        _ => byte & 15,
    }
}

/// Levels of all bytes for each table, each raised by `raise`.
const fn tables<C: Levels>(raise: u8) -> [[u8; 64]; 3] {
    let (values, count) = C::VALUES;
    let mut tables = [[0; 64]; 3];
    let mut byte = 0;
    while byte < 64 {
        let mut t = 0;
        while t < 3 {
            let code = code(C::UNIT_LINES, t, byte);
            // Codes that are no level stand for nothing; the packing writes none.
            if code < count {
                tables[t][byte] = values[code].cast_unsigned().wrapping_add(raise);
            }
            t += 1;
        }
        byte += 1;
    }
    tables
}

/// The levels by their codes.
#[derive(Clone, Copy)]
pub(super) struct Lookup([__m512i; 3]);

impl Lookup {
    /// Raised by `RAISE`; bytes that are their own codes are as they were packed.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn new<C: Levels, const RAISE: u8>() -> Lookup {
        let tables = const { &tables::<C>(RAISE) };
        // SAFETY: a table has 64 bytes.
        let [a, b, c] = tables.each_ref().map(|table| unsafe { Zmm::load(table.as_ptr()) });
        Lookup([a, b, c])
    }

    /// The levels of a unit, a dword of four weights of each row after the other.
    ///
    /// # Safety
    /// The lines of the unit are readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi")]
    pub(super) unsafe fn unit<C: Levels>(self, unit: *const u8) -> [__m512i; 8] {
        // SAFETY: the caller's unit has these lines.
        let line = |i: usize| unsafe { Zmm::load(unit.add(64 * i)) };
        // The bits above the lowest six are ignored, so that bits of the next byte may come in there.
        match C::UNIT_LINES {
            2 => self.of_two_bits(line(0), line(1)),
            3 => self.of_three_bits(line(0), line(1), line(2)),
            4 => self.of_four_bits([line(0), line(1), line(2), line(3)]),
            5 => self.of_five_bits([line(0), line(1), line(2), line(3)], line(4)),
            _ => [line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)],
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi")]
    fn of_two_bits(self, a: __m512i, b: __m512i) -> [__m512i; 8] {
        let [at_0, at_2, at_4] = self.0;
        [
            _mm512_permutexvar_epi8(a, at_0),
            _mm512_permutexvar_epi8(b, at_0),
            _mm512_permutexvar_epi8(a, at_2),
            _mm512_permutexvar_epi8(b, at_2),
            _mm512_permutexvar_epi8(a, at_4),
            _mm512_permutexvar_epi8(b, at_4),
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(a), at_4),
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(b), at_4),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi")]
    fn of_three_bits(self, a: __m512i, b: __m512i, c: __m512i) -> [__m512i; 8] {
        let [at_0, at_3, at_2] = self.0;
        let left = select::<0xC0>(a, _mm512_srli_epi16::<2>(b));
        let left = select::<0xF0>(left, _mm512_srli_epi16::<4>(c));
        [
            _mm512_permutexvar_epi8(a, at_0),
            _mm512_permutexvar_epi8(b, at_0),
            _mm512_permutexvar_epi8(c, at_0),
            _mm512_permutexvar_epi8(a, at_3),
            _mm512_permutexvar_epi8(b, at_3),
            _mm512_permutexvar_epi8(c, at_3),
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(left), at_3),
            _mm512_permutexvar_epi8(left, at_2),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi")]
    fn of_four_bits(self, [a, b, c, d]: [__m512i; 4]) -> [__m512i; 8] {
        let [at_0, ..] = self.0;
        [
            _mm512_permutexvar_epi8(a, at_0),
            _mm512_permutexvar_epi8(b, at_0),
            _mm512_permutexvar_epi8(c, at_0),
            _mm512_permutexvar_epi8(d, at_0),
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(a), at_0),
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(b), at_0),
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(c), at_0),
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(d), at_0),
        ]
    }

    /// The fifth bits of two dwords stand at bits 4 and 5 without a shift, those of two more by each shift.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi")]
    fn of_five_bits(self, [a, b, c, d]: [__m512i; 4], fifth: __m512i) -> [__m512i; 8] {
        let [with_4, with_5, _] = self.0;
        let high = _mm512_srli_epi16::<4>;
        let first = _mm512_slli_epi16::<4>(fifth);
        let second = _mm512_slli_epi16::<2>(fifth);
        let last = _mm512_srli_epi16::<2>(fifth);
        [
            _mm512_permutexvar_epi8(select::<0x0F>(a, first), with_4),
            _mm512_permutexvar_epi8(select::<0x0F>(b, first), with_5),
            _mm512_permutexvar_epi8(select::<0x0F>(c, second), with_4),
            _mm512_permutexvar_epi8(select::<0x0F>(d, second), with_5),
            _mm512_permutexvar_epi8(select::<0x0F>(high(a), fifth), with_4),
            _mm512_permutexvar_epi8(select::<0x0F>(high(b), fifth), with_5),
            _mm512_permutexvar_epi8(select::<0x0F>(high(c), last), with_4),
            _mm512_permutexvar_epi8(select::<0x0F>(high(d), last), with_5),
        ]
    }
}

/// The bits of `MASK` of each byte from the first, the others from the second.
#[inline]
#[target_feature(enable = "avx512f")]
fn select<const MASK: u8>(first: __m512i, second: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi8(MASK.cast_signed()), first, second)
}
