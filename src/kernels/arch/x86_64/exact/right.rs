//! The right side: 32 lanes of keys or of elements of values.

// Indices, so that every loop unrolls and its arrays become registers.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;

use super::left::ABOVE;
use super::{Bits, DIGITS, balanced, digits};
use crate::arch::x86_64::packed::half_limbs::transposed;
use crate::arch::x86_64::tiles::{ROW, ROWS};
use crate::shared::halves::form::PLAIN;
use crate::shared::halves::{BLOCK, F16Encoding, LANES, Line, STEPS};

/// Bytes of sixteen lanes.
pub const fn half(k: usize) -> usize {
    (DIGITS * k / STEPS + ROWS) * ROW
}

/// Words of some tiles of steps, each with 32 lanes of `quads` words.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    /// The first tile, from the 32 lanes wanted on.
    pub first: *const Line,
    /// Lines from tile to tile.
    pub tile: usize,
    /// Words of steps of a tile.
    pub quads: usize,
    /// The form of each tile.
    pub forms: &'a [F16Encoding],
    /// Words of steps that are there; behind them are zeros.
    pub count: usize,
    /// Lanes that are there, as far.
    pub lanes: usize,
}

/// Units and bounds of 32 lanes.
#[repr(C, align(64))]
pub struct Lanes {
    pub units: [f32; LANES],
    /// Norms of the lanes, in their units.
    pub norms: [f32; LANES],
    /// Magnitudes.
    pub greatest: [f32; LANES],
    pub digits: usize,
}

/// The lanes' digits; `None` where they have more than there is room for, or no numbers.
///
/// # Safety
/// AVX-512; the words, and room for both halves of `k` steps, aligned to 64 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn expand(words: Words<'_>, k: usize, to: *mut u8) -> Option<Lanes> {
    // SAFETY: as here.
    unsafe {
        match words.forms.iter().max() {
            Some(F16Encoding::Special) => None,
            Some(F16Encoding::Plain) => expand_of::<false>(words, k, to),
            _ => expand_of::<true>(words, k, to),
        }
    }
}

/// Factor from converted words of a form to values.
fn found(form: F16Encoding) -> f32 {
    match form {
        F16Encoding::Normalized => 1.0 / PLAIN,
        _ => 1.0,
    }
}

/// # Safety
/// The processor has these features; the words of all tiles are readable, and `to` has room for the digits of `k` steps
/// of all lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn expand_of<const SMALL: bool>(words: Words<'_>, k: usize, to: *mut u8) -> Option<Lanes> {
    let mut bits = [Bits::none(); 8];
    let mut at = 0;
    for (tile, &form) in words.forms.iter().enumerate() {
        let found = _mm512_set1_ps(found(form));
        let quads = words.quads.min(words.count - at);
        for quad in 0..quads {
            // SAFETY: a word of the tile.
            let from = unsafe { words.first.add(tile * words.tile + quad * BLOCK) };
            for j in 0..8 {
                // SAFETY: four lanes.
                let x = unsafe { four(from, j) };
                bits[j].add::<SMALL>(_mm512_mul_ps(x, found));
            }
        }
        at += quads;
    }
    let mut lanes = Lanes { units: [1.0; LANES], norms: [0.0; LANES], greatest: [0.0; LANES], digits: 0 };
    let mut scales = [_mm512_setzero_ps(); 8];
    let mut most = _mm512_setzero_ps();
    for j in 0..8 {
        let there = there(words.lanes, j);
        let across = |x: __m512i| {
            let x = _mm512_or_si512(x, _mm512_shuffle_epi32::<0b10_11_00_01>(x));
            let x = _mm512_or_si512(x, _mm512_shuffle_epi32::<0b01_00_11_10>(x));
            _mm512_maskz_mov_epi32(there, x)
        };
        let greatest = bits[j].greatest;
        let greatest = _mm512_max_epu32(greatest, _mm512_shuffle_epi32::<0b10_11_00_01>(greatest));
        let greatest = _mm512_max_epu32(greatest, _mm512_shuffle_epi32::<0b01_00_11_10>(greatest));
        let greatest = _mm512_castsi512_ps(_mm512_maskz_mov_epi32(there, greatest));
        let units = Bits { small: across(bits[j].small), large: across(bits[j].large), ..bits[j] }.units();
        scales[j] = _mm512_div_ps(_mm512_set1_ps(1.0), units);
        most = _mm512_max_ps(most, _mm512_mul_ps(greatest, scales[j]));
        put_four(units, &mut lanes.units, j);
        put_four(greatest, &mut lanes.greatest, j);
    }
    lanes.digits = digits(_mm512_reduce_max_ps(most))?;
    // SAFETY: as here.
    let squares = unsafe {
        match lanes.digits {
            2 => split::<2>(words, scales, k, to),
            3 => split::<3>(words, scales, k, to),
            _ => split::<4>(words, scales, k, to),
        }
    };
    for j in 0..8 {
        let sum = squares[j];
        let sum = _mm512_add_ps(sum, _mm512_permute_ps::<0b10_11_00_01>(sum));
        let sum = _mm512_add_ps(sum, _mm512_permute_ps::<0b01_00_11_10>(sum));
        let norms = _mm512_mul_ps(_mm512_sqrt_ps(sum), _mm512_set1_ps(ABOVE));
        put_four(norms, &mut lanes.norms, j);
    }
    Some(lanes)
}

/// Digits of all lanes, and the sums of squares of each.
///
/// # Safety
/// The processor has these features; the words of all tiles are readable, and `to` has room for the digits of `k` steps
/// of all lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn split<const D: usize>(words: Words<'_>, scales: [__m512; 8], k: usize, to: *mut u8) -> [__m512; 8] {
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let by_digit = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let by_digit = _mm512_broadcast_i32x4(by_digit);
    let mut squares = [_mm512_setzero_ps(); 8];
    let there: [__mmask16; 8] = std::array::from_fn(|j| there(words.lanes, j));
    let line = |half_no: usize, digit: usize, line: usize| {
        let lines = (DIGITS - 1 - digit) * (k / STEPS) + line;
        // SAFETY: a line of the digit.
        unsafe { to.add(half_no * half(k) + lines * ROW).cast::<__m512i>() }
    };
    let mut at = 0;
    for (tile, &form) in words.forms.iter().enumerate() {
        let found = _mm512_set1_ps(found(form));
        let scales = scales.map(|scale| _mm512_mul_ps(scale, found));
        let quads = words.quads.min(words.count - at);
        for quad in 0..quads {
            // SAFETY: a word of the tile.
            let from = unsafe { words.first.add(tile * words.tile + quad * BLOCK) };
            for half in 0..2 {
                let mut rows = [_mm512_setzero_si512(); 4];
                for i in 0..4 {
                    let j = 4 * half + i;
                    // SAFETY: four lanes.
                    let x = _mm512_maskz_mul_ps(there[j], unsafe { four(from, j) }, scales[j]);
                    squares[j] = _mm512_fmadd_ps(x, x, squares[j]);
                    let x = balanced(_mm512_cvtps_epi32(x));
                    rows[i] = _mm512_shuffle_epi8(x, by_digit);
                }
                let digits = transposed(rows);
                for digit in 0..D {
                    let bytes = _mm512_permutexvar_epi32(order, digits[digit]);
                    // SAFETY: as above.
                    unsafe { _mm512_store_si512(line(half, digit, at + quad), bytes) };
                }
            }
        }
        at += quads;
    }
    let zero = _mm512_setzero_si512();
    for half in 0..2 {
        for digit in 0..D {
            // SAFETY: as above.
            (at..k / STEPS).for_each(|l| unsafe { _mm512_store_si512(line(half, digit, l), zero) });
        }
        if !k.is_multiple_of(ROW) {
            // SAFETY: the lines behind those of the lowest digit.
            (0..ROWS).for_each(|l| unsafe {
                _mm512_store_si512(line(half, 0, k / STEPS + l), zero);
            });
        }
    }
    squares
}

/// Four lanes of a word as conversion finds them, four steps of each.
///
/// # Safety
/// The processor has AVX-512 F; `word` points at the four lines of a word of steps, and `j` is below 8.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn four(word: *const Line, j: usize) -> __m512 {
    // SAFETY: the caller has a word of 32 lanes.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(word.cast::<__m256i>().add(j))) }
}

/// Which of four lanes are among `lanes`, four bits for each.
#[inline]
fn there(lanes: usize, j: usize) -> __mmask16 {
    let lanes = lanes.saturating_sub(4 * j).min(4);
    ((1u32 << (4 * lanes)) - 1) as __mmask16
}

/// The first of four steps of each lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn put_four(x: __m512, to: &mut [f32; LANES], j: usize) {
    let four = _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, x));
    // SAFETY: four of the lanes.
    unsafe { _mm_storeu_ps(to[4 * j..][..4].as_mut_ptr(), four) };
}
