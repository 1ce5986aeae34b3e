//! What kernels ask of vectors, whatever instruction set they are made of. Who implements these traits stands under
//! [`crate::arch`]; the portable forms are the definitions.
//!
//! [`Simd`] and [`Vector`] are sixteen `f32` with all of their arithmetic, and safe: a value of the instruction set is
//! the proof that the processor has it. They come from `trine_formats`, whose searches are written in them.
//!
//! [`Doubles`] are eight `f64` that only sum products of half floats. They are no second [`Vector`], because what makes
//! them fast is what a vector of numbers does not have: they read packed words of four half floats, widen one field of
//! each, and keep as many rows of sums as the registers of the instruction set hold.
//!
//! The integer kernels have no trait of lanes: each instruction set multiplies bytes by other instructions and in another
//! arrangement, so that there is no common step to name. They share what comes before and after, `Codes` and the like,
//! which say how a type unpacks.

#[cfg(target_arch = "x86_64")]
pub use trine_formats::types::lanes::{LANES, Mask, Simd, Vector};
#[cfg(all(test, target_arch = "x86_64"))]
pub use trine_formats::types::lanes::{Portable, ROUNDS};

use crate::line::Line;

/// Eight `f64` side by side, and the lines of half floats or bfloats that are widened to them.
///
/// # Safety
/// All functions ask for the instruction set; pointers are to as much as is read or written,
/// aligned or not.
pub trait Doubles {
    /// Rows whose sums are kept in registers together.
    const ROWS: usize;
    /// A line.
    type Words: Copy;
    /// Eight `f64`.
    type Sums: Copy;

    /// Lines likewise, of so many rows.
    fn lines(rows: usize) -> usize;
    unsafe fn zero() -> Self::Sums;
    unsafe fn words(p: *const Line) -> Self::Words;
    unsafe fn no_words() -> Self::Words;
    /// Asks for a line, which need not be there.
    unsafe fn prefetch(p: *const Line);
    /// Field `K` of every word, a half float or a bfloat, widened.
    unsafe fn field<const K: usize, const BRAIN: bool>(words: Self::Words) -> Self::Sums;
    /// `acc + w * c`, where the product is exact.
    unsafe fn add(acc: Self::Sums, w: Self::Sums, c: *const f64) -> Self::Sums;
    unsafe fn load(p: *const f64) -> Self::Sums;
    unsafe fn store(p: *mut f64, v: Self::Sums);
    unsafe fn store_f32(p: *mut f32, v: Self::Sums);
}
