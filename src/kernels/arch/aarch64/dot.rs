//! Sums of four products of bytes, with and without the instruction for it.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::arch::halves::native::widen;

use crate::proof::{Dotprod, Neon};

/// Four rows side by side, each with four bytes.
pub(super) trait Dot {
    /// `sums[row] + sum over i of codes[4 row + i] * acts[4 L + i]`, for four rows; all bytes are signed.
    ///
    /// Two products of the same row have to fit 16 bits: not both of them are -128 * -128. Activations are never -128.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn lane<const L: i32>(sums: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t;
}

/// By multiplication of bytes to 16 bits, and sums of pairs.
impl Dot for Neon {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn lane<const L: i32>(sums: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t {
        let acts = vreinterpretq_s8_s32(vdupq_laneq_s32::<L>(vreinterpretq_s32_s8(acts)));
        let two_rows = vmull_s8(vget_low_s8(codes), vget_low_s8(acts));
        let next_two = vmull_high_s8(codes, acts);
        vpadalq_s16(sums, vpaddq_s16(two_rows, next_two))
    }
}

/// By `SDOT`.
impl Dot for Dotprod {
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn lane<const L: i32>(mut sums: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t {
        // SAFETY: the instruction, which the features of this function include, reads and writes the named registers
        // and nothing else.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {codes:v}.16b, {acts:v}.4b[{lane}]",
                sums = inout(vreg) sums,
                codes = in(vreg) codes,
                acts = in(vreg) acts,
                lane = const L,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sums
    }
}

/// `sums[2 i + j] + sum over k of codes[8 i + k] * acts[8 j + k]`: two rows times two tokens, by `SMMLA`.
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub(super) fn two_by_two(mut sums: int32x4_t, codes: int8x16_t, acts: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction, which the features of this function include, reads and writes the named registers and
    // nothing else.
    unsafe {
        asm!(
            "smmla {sums:v}.4s, {codes:v}.16b, {acts:v}.16b",
            sums = inout(vreg) sums,
            codes = in(vreg) codes,
            acts = in(vreg) acts,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Products of bytes as two limbs, the upper of which counts 256. The lower one has a sign, by which the rounding makes
/// up for it.
///
/// One piece, because the compiler would take apart the halves of what it multiplies by, and run out of registers.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn multiply(a: int8x16_t, b: int8x16_t) -> [int8x16_t; 2] {
    let (upper, lower);
    // SAFETY: reads and writes the named registers and nothing else.
    unsafe {
        asm!(
            "smull {lower:v}.8h, {a:v}.8b, {b:v}.8b",
            "smull2 {next:v}.8h, {a:v}.16b, {b:v}.16b",
            "rshrn {upper:v}.8b, {lower:v}.8h, #8",
            "rshrn2 {upper:v}.16b, {next:v}.8h, #8",
            "uzp1 {lower:v}.16b, {lower:v}.16b, {next:v}.16b",
            a = in(vreg) a,
            b = in(vreg) b,
            upper = out(vreg) upper,
            lower = out(vreg) lower,
            next = out(vreg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    [upper, lower]
}

/// Products of bytes, summed in pairs of 16 bits, times scales: sums of the lower four pairs and of the upper four.
///
/// Two products have to fit 16 bits: not both of them are -128 * -128. One piece, for the reasons of [`multiply`].
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn add_scaled_pairs(
    [mut lower, mut upper]: [int32x4_t; 2],
    a: int8x16_t,
    b: int8x16_t,
    scales: int16x8_t,
) -> [int32x4_t; 2] {
    // SAFETY: reads and writes the named registers and nothing else.
    unsafe {
        asm!(
            "smull {products:v}.8h, {a:v}.8b, {b:v}.8b",
            "smull2 {next:v}.8h, {a:v}.16b, {b:v}.16b",
            "addp {products:v}.8h, {products:v}.8h, {next:v}.8h",
            "smlal {lower:v}.4s, {products:v}.4h, {scales:v}.4h",
            "smlal2 {upper:v}.4s, {products:v}.8h, {scales:v}.8h",
            a = in(vreg) a,
            b = in(vreg) b,
            scales = in(vreg) scales,
            lower = inout(vreg) lower,
            upper = inout(vreg) upper,
            products = out(vreg) _,
            next = out(vreg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    [lower, upper]
}

/// The upper `N` bits of each byte of `a`, and behind them what fits of `b`. (The compiler would make three
/// instructions of the intrinsic.)
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn insert_behind<const N: i32>(mut a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    // SAFETY: reads and writes the named registers and nothing else.
    unsafe {
        asm!(
            "sri {a:v}.16b, {b:v}.16b, {n}",
            a = inout(vreg) a,
            b = in(vreg) b,
            n = const N,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    a
}

/// Four half floats in memory as `f32`.
///
/// # Safety
/// Eight bytes are readable at `p`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn halves(p: *const u8) -> float32x4_t {
    // SAFETY: the caller has eight readable bytes at `p`; no alignment is asked for.
    widen(vreinterpret_u16_u8(unsafe { vld1_u8(p) }))
}

/// 16 bytes.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn load(p: *const u8) -> int8x16_t {
    // SAFETY: the caller has 16 readable bytes at `p`; no alignment is asked for.
    unsafe { vld1q_s8(p.cast()) }
}
