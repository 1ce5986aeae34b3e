//! Half floats widened to `f64`: the lanes that sum their products, and the portable ones.
//!
//! [`Doubles`] are no [`crate::simd::Vector`], because what makes them fast is what a vector of numbers does not have:
//! they read packed words of four half floats, widen one field of each, and keep as many rows of sums as the registers of
//! the instruction set hold.

use crate::arch::functions::{functions, unsafe_functions};
use crate::line::Line;

/// Eight `f64` side by side, and the lines of half floats or bfloats that are widened to them. Pointers need no alignment.
pub trait Doubles {
    /// Rows whose sums are kept in registers together.
    const ROWS: usize;
    /// A line.
    type Words: Copy;
    /// Eight `f64`.
    type Sums: Copy;

    /// Lines whose sums are kept in registers together, of `rows` rows.
    fn lines(rows: usize) -> usize;

    unsafe_functions! { "The processor has the instruction set.";
        /// Zeros.
        zero() -> Self::Sums;
        /// A line.
        words(p: *const Line) -> Self::Words: "A line is readable.";
        /// A line of zeros.
        no_words() -> Self::Words;
        /// Prefetches a line, which need not be there.
        prefetch(p: *const Line) -> ();
        /// Field `K` of every word, a half float or a bfloat, widened.
        field[const K: usize, const BRAIN: bool](words: Self::Words) -> Self::Sums;
        /// `acc + w * c`, where the product is exact.
        add(acc: Self::Sums, w: Self::Sums, c: *const f64) -> Self::Sums: "A float is readable.";
        /// Eight `f64`.
        load(p: *const f64) -> Self::Sums: "Eight floats are readable.";
        /// Writes eight `f64`.
        store(p: *mut f64, v: Self::Sums) -> (): "There is room for eight floats.";
        /// Writes eight sums, rounded to `f32`.
        store_f32(p: *mut f32, v: Self::Sums) -> (): "There is room for eight floats.";
    }

    /// Adds `quads` words of steps to one row of four lines, which lie one behind the other; prefetches the lines
    /// `ahead` bytes behind them unless that is 0. Returns true if this was done.
    ///
    /// # Safety
    /// The processor has the instruction set; `quads` times four lines and as many coefficients are readable.
    #[inline(always)]
    unsafe fn add_row<const BRAIN: bool>(
        _acc: &mut [Self::Sums; 4],
        _lines: *const Line,
        _quads: usize,
        _coefs: *const f64,
        _ahead: usize,
    ) -> bool {
        false
    }
}

/// Rows of sums that AVX2's registers hold: 16 of 4 `f64`, less the words, their widened form and a coefficient.
pub const AVX2_ROWS: usize = 4;
/// Rows of four lines that AVX-512's registers hold: 32 of 8 `f64`, less the same.
pub const AVX512_ROWS: usize = 5;

/// Rows of sums that NEON's registers hold: 32 of 2 `f64`, less the same.
pub const NEON_ROWS: usize = 4;

/// Rows of sums that the 16 registers of most machines under WebAssembly hold: each has 4 vectors of 2 `f64`, less the same.
pub const SIMD128_ROWS: usize = 2;

/// Magnitude and sign of a widened half float.
const MASK: u64 = 0x81FF_FC00_0000_0000;
/// The same of a widened bfloat.
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

    functions! { [#[inline(always)]]
        zero() -> [f64; 8] { [0.0; 8] }
        words(p: *const Line) -> [u64; 8] { p.cast::<[u64; 8]>().read_unaligned() }
        no_words() -> [u64; 8] { [0; 8] }
        prefetch(_: *const Line) -> () {}
        field[const K: usize, const BRAIN: bool](words: [u64; 8]) -> [f64; 8] {
            let (shift, mask) = widening(BRAIN);
            words.map(|w| {
                let top = (w << (48 - 16 * K)).cast_signed();
                f64::from_bits((top >> shift).cast_unsigned() & mask)
            })
        }
        add(mut acc: [f64; 8], w: [f64; 8], c: *const f64) -> [f64; 8] {
            let c = *c;
            for (a, w) in acc.iter_mut().zip(w) {
                *a += w * c;
            }
            acc
        }
        load(p: *const f64) -> [f64; 8] { p.cast::<[f64; 8]>().read() }
        store(p: *mut f64, v: [f64; 8]) -> () { p.cast::<[f64; 8]>().write(v) }
        store_f32(p: *mut f32, v: [f64; 8]) -> () { p.cast::<[f32; 8]>().write(v.map(|v| v as f32)) }
    }
}
