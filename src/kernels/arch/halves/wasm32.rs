//! The lanes of [`crate::shared::halves`] in vectors of two. Conversions have none of their own: [`super::none`].

use std::arch::wasm32::*;

use crate::arch::doubles::{Doubles, SIMD128_ROWS, widening};
use crate::arch::functions::functions;
use crate::shared::halves::Line;

/// Four vectors of two.
pub struct Simd128;

/// Vectors of a line.
const VECTORS: usize = 4;
/// The sign of a number.
const SIGN: u64 = 1 << 63;

impl Doubles for Simd128 {
    const ROWS: usize = SIMD128_ROWS;
    type Words = [v128; VECTORS];
    type Sums = [v128; VECTORS];

    #[inline(always)]
    fn lines(_: usize) -> usize {
        1
    }

    functions! { [#[inline(always)]]
        zero() -> Self::Sums { [f64x2_splat(0.0); VECTORS] }
        words(p: *const Line) -> Self::Words { std::array::from_fn(|i| v128_load(p.cast::<v128>().add(i))) }
        no_words() -> Self::Words { [u64x2_splat(0); VECTORS] }
        prefetch(_: *const Line) -> () {}
        field[const K: usize, const BRAIN: bool](words: Self::Words) -> Self::Sums {
            let (shift, mask) = widening(BRAIN);
            words.map(|x| {
                let top = u64x2_shl(x, 48 - 16 * K as u32);
                // The shift of a number with a sign is slow on x86: the sign is kept beside it.
                let magnitude = v128_and(u64x2_shr(v128_and(top, u64x2_splat(!SIGN)), shift as u32), u64x2_splat(mask & !SIGN));
                v128_or(magnitude, v128_and(top, u64x2_splat(SIGN)))
            })
        }
        add(acc: Self::Sums, w: Self::Sums, c: *const f64) -> Self::Sums {
            let c = v128_load64_splat(c.cast());
            // The product is exact, so that rounding the sum is the one rounding that there is.
            std::array::from_fn(|i| f64x2_add(acc[i], f64x2_mul(w[i], c)))
        }
        load(p: *const f64) -> Self::Sums { std::array::from_fn(|i| v128_load(p.cast::<v128>().add(i))) }
        store(p: *mut f64, v: Self::Sums) -> () {
            for (i, v) in v.into_iter().enumerate() {
                v128_store(p.cast::<v128>().add(i), v)
            }
        }
        store_f32(p: *mut f32, v: Self::Sums) -> () {
            for (i, v) in v.as_chunks::<2>().0.iter().enumerate() {
                let [low, high] = v.map(|v| f32x4_demote_f64x2_zero(v));
                v128_store(p.cast::<v128>().add(i), i32x4_shuffle::<0, 1, 4, 5>(low, high))
            }
        }
    }
}
