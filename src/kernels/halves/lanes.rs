//! Half floats widened to `f64`, and the lanes of [`Doubles`] in portable Rust.

use super::Line;
use crate::simd::Doubles;

/// Rows of sums that AVX2's registers hold: 16 of 4 `f64`, less the words, their widened form and a coefficient.
pub const AVX2_ROWS: usize = 4;
/// Rows of four lines that AVX-512's registers hold: 32 of 8 `f64`, less the same.
pub const AVX512_ROWS: usize = 5;

/// Rows of sums that NEON's registers hold: 32 of 2 `f64`, less the same.
pub const NEON_ROWS: usize = 4;

/// Magnitude and sign of a widened half float.
const MASK: u64 = 0x81FF_FC00_0000_0000;
/// Of a widened bfloat.
const BRAIN_MASK: u64 = 0x8FFF_E000_0000_0000;

/// How far the top field is shifted, and what is left.
pub const fn widening(brain: bool) -> (i32, u64) {
    if brain { (3, BRAIN_MASK) } else { (6, MASK) }
}

/// Portable.
pub struct Scalar;

impl Doubles for Scalar {
    const ROWS: usize = 1;
    type Words = [u64; 8];
    type Sums = [f64; 8];

    #[inline(always)]
    fn lines(_: usize) -> usize {
        1
    }
    #[inline(always)]
    unsafe fn zero() -> [f64; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn words(p: *const Line) -> [u64; 8] {
        // SAFETY: the caller has a line there.
        unsafe { p.cast::<[u64; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn no_words() -> [u64; 8] {
        [0; 8]
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const Line) {}
    #[inline(always)]
    unsafe fn field<const K: usize, const BRAIN: bool>(words: [u64; 8]) -> [f64; 8] {
        let (shift, mask) = widening(BRAIN);
        words.map(|w| {
            let top = (w << (48 - 16 * K)).cast_signed();
            f64::from_bits((top >> shift).cast_unsigned() & mask)
        })
    }
    #[inline(always)]
    unsafe fn add(mut acc: [f64; 8], w: [f64; 8], c: *const f64) -> [f64; 8] {
        // SAFETY: the caller has a coefficient there.
        let c = unsafe { *c };
        for (a, w) in acc.iter_mut().zip(w) {
            *a += w * c;
        }
        acc
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> [f64; 8] {
        // SAFETY: the caller has eight there.
        unsafe { p.cast::<[f64; 8]>().read() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f64, v: [f64; 8]) {
        // SAFETY: the caller has room for eight there.
        unsafe { p.cast::<[f64; 8]>().write(v) }
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, v: [f64; 8]) {
        // SAFETY: the caller has room for eight there.
        unsafe { p.cast::<[f32; 8]>().write(v.map(|v| v as f32)) }
    }
}
