//! Sums of products of bytes, widened to words: the one instruction for products that are summed, `i32x4.dot_i16x8_s`,
//! takes words.
//!
//! A vector of codes holds four bytes of each of four rows. Widened it is two vectors, and so are its sums: lanes 2i and
//! 2i + 1 of vector j belong to row 2j + i. Activations are arranged as words, four of which one load puts twice into a
//! vector.

use std::arch::wasm32::*;

/// Rows of a vector.
pub(super) const FOUR: usize = 4;

/// Four words of each of four rows.
pub(super) type Words = [v128; 2];
/// Two sums of each of four rows.
pub(super) type Sums = [v128; 2];

/// No sums yet.
pub(super) const ZERO: Sums = [i32x4(0, 0, 0, 0); 2];

/// Sixteen bytes.
///
/// # Safety
/// They are readable; no alignment is asked for.
#[inline(always)]
pub(super) unsafe fn load(p: *const u8) -> v128 {
    // SAFETY: the caller has sixteen readable bytes.
    unsafe { v128_load(p.cast()) }
}

/// Four words, twice.
///
/// # Safety
/// They are readable; no alignment is asked for.
#[inline(always)]
pub(super) unsafe fn four_words(p: *const i16) -> v128 {
    // SAFETY: the caller has four readable words.
    unsafe { v128_load64_splat(p.cast()) }
}

/// Four half floats as `f32`: as `f16_to_f32` but for the payload of a NaN.
///
/// # Safety
/// They are readable; no alignment is asked for.
#[inline(always)]
pub(super) unsafe fn halves(p: *const u8) -> v128 {
    // SAFETY: the caller has eight readable bytes.
    let bits = u32x4_extend_low_u16x8(unsafe { v128_load64_zero(p.cast()) });
    let sign = i32x4_shl(v128_and(bits, u32x4_splat(0x8000)), 16);
    let magnitude = i32x4_shl(v128_and(bits, u32x4_splat(0x7FFF)), 13);
    // The exponent counts from 15 less than it should for 2^112, which a product makes up for, exactly and of numbers
    // that are not normal too.
    let number = f32x4_mul(magnitude, f32x4_splat(f32::from_bits((127 + 112) << 23)));
    // An infinity or a NaN has all bits of the exponent.
    let special = u32x4_ge(magnitude, u32x4_splat(0x7C00 << 13));
    let all = v128_or(magnitude, u32x4_splat(0xFF << 23));
    v128_or(sign, v128_bitselect(all, number, special))
}

/// Codes without a sign as words.
#[inline(always)]
pub(super) fn words(codes: v128) -> Words {
    [u16x8_extend_low_u8x16(codes), u16x8_extend_high_u8x16(codes)]
}

/// Codes with a sign as words.
#[inline(always)]
pub(super) fn signed_words(codes: v128) -> Words {
    [i16x8_extend_low_i8x16(codes), i16x8_extend_high_i8x16(codes)]
}

/// `f` of both vectors.
#[inline(always)]
pub(super) fn both(a: Words, b: Words, f: impl Fn(v128, v128) -> v128) -> Words {
    [f(a[0], b[0]), f(a[1], b[1])]
}

/// Adds the products of four rows' words with a token's four, which stand twice in `act`.
#[inline(always)]
pub(super) fn add(sums: Sums, w: Words, act: v128) -> Sums {
    [i32x4_add(sums[0], i32x4_dot_i16x8(w[0], act)), i32x4_add(sums[1], i32x4_dot_i16x8(w[1], act))]
}

/// The sum of each row.
#[inline(always)]
pub(super) fn total(sums: Sums) -> v128 {
    let [a, b] = sums;
    i32x4_add(i32x4_shuffle::<0, 2, 4, 6>(a, b), i32x4_shuffle::<1, 3, 5, 7>(a, b))
}

/// The sums of eight vectors of codes with `N` tokens, of each of which the vectors meet 32 words in their order.
///
/// # Safety
/// They are readable.
#[inline(always)]
pub(super) unsafe fn eight<const N: usize>(mut sums: [Sums; N], w: &[Words; 8], acts: [*const i16; N]) -> [Sums; N] {
    for (s, w) in w.iter().enumerate() {
        for (sums, act) in sums.iter_mut().zip(acts) {
            // SAFETY: the caller has these words of each token.
            *sums = add(*sums, *w, unsafe { four_words(act.add(FOUR * s)) });
        }
    }
    sums
}

/// Writes four floats.
#[inline(always)]
pub(super) fn store(out: &mut [f32], v: v128) {
    let out = &mut out[..FOUR];
    // SAFETY: `out` has four floats; the store asks for no alignment.
    unsafe { v128_store(out.as_mut_ptr().cast(), v) }
}
