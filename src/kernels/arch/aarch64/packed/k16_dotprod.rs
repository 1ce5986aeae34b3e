//! Q6_K and Q3_K for ARM where there is `SDOT`.
//!
//! With one token, what the two scales of a unit of Q6_K are to be multiplied by are two sums of products: that of all
//! four elements, and that of the first two, for which the activations of the others are masked.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by unit and line alike")]

use std::arch::aarch64::*;

use super::super::dot::{Dot, halves, load};
use super::FOUR;
use super::k_one::{Once, one};
use super::k_tile::{Scaled, TOKENS, limbs, spread, tile};
use super::k16::{CodesOf16, layout};
use super::lanes::{Acts, act_bytes, multiply};
use super::pair::{LanePair, SmmlaPair, Weights};
use crate::arch::functions::functions;
use crate::proof::{self, Dotprod, Proof};
use crate::shared::packed::Layout;
use crate::shared::packed::k_quants::ROWS;
use crate::shared::packed::k_quants::of_16::{Layout16, Q3K, Q6K, at};

/// Kernels of a type: codes of 16 weights, and products of one token.
trait Kernels: CodesOf16 + Once {}
impl Kernels for Q6K {}
impl Kernels for Q3K {}

/// Which bytes of a dword of scales, first and second of an even unit, first and second of the next, are added how many
/// times: for the first two elements and for all four of the even unit, the same of the odd one.
static FACTORS: [[i8; 4]; 4] = [[1, -2, 0, 0], [0, 1, -1, 1], [0, 0, 1, -2], [0, 0, 0, 1]];
/// The same, of the dword that follows, for all four of the odd unit.
static FACTORS_OF_NEXT: [[i8; 4]; 4] = [[-1, 1, 0, 0], [0; 4], [0; 4], [0; 4]];

impl Once for Q6K {
    /// Differences of the scale of each sum and the next: the first two elements of a unit, then all of it.
    type Scales = [int32x4_t; 16];
    const UNROLLED: bool = false;

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn scales(group: *const u8, b: usize, r: usize) -> ([int32x4_t; 16], float32x4_t) {
        let zero = vdupq_n_s32(0);
        let mut all = [zero; 16];
        // SAFETY: the caller's promise, and 16 bytes each; this function has the features.
        unsafe {
            let (d, scales) = head::<Q6K>(group, b, r);
            let factors = load(FACTORS.as_flattened().as_ptr().cast());
            let next = load(FACTORS_OF_NEXT.as_flattened().as_ptr().cast());
            for (g, four) in all.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *four = [
                    Dotprod::lane::<0>(zero, scales[g], factors),
                    Dotprod::lane::<1>(zero, scales[g], factors),
                    Dotprod::lane::<2>(zero, scales[g], factors),
                    Dotprod::lane::<3>(zero, scales[g], factors),
                ];
                if let Some(&scales) = scales.get(g + 1) {
                    four[3] = Dotprod::lane::<0>(four[3], scales, next);
                }
            }
            (all, d)
        }
    }
    #[inline(always)]
    unsafe fn subtract(_: &[int32x4_t; 16], minus: float32x4_t, _: Acts) -> float32x4_t {
        minus
    }
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn chain(scales: &[int32x4_t; 16], part: *const u8, r: usize, y: [int8x16_t; 2]) -> float32x4_t {
        // SAFETY: the caller's promise.
        let w = unsafe { Q6K::unpack(part, r) };
        let two = vreinterpretq_s8_u32(vdupq_n_u32(0xFFFF));
        let (mut all, mut sum) = (vdupq_n_s32(0), vdupq_n_s32(0));
        for (half, y) in y.into_iter().enumerate() {
            let (w, scales) = (&w[4 * half..], &scales[8 * half..]);
            let first = vandq_s8(y, two);
            macro_rules! unit {
                ($s:literal) => {
                    all = Dotprod::lane::<$s>(all, w[$s], first);
                    sum = vmlaq_s32(sum, all, scales[2 * $s]);
                    all = Dotprod::lane::<$s>(all, w[$s], y);
                    sum = vmlaq_s32(sum, all, scales[2 * $s + 1]);
                };
            }
            // SAFETY: this function has the features.
            unsafe {
                unit!(0);
                unit!(1);
                unit!(2);
                unit!(3);
            }
        }
        // SAFETY: this function has the features.
        unsafe { Q6K::float(sum) }
    }
}

impl Once for Q3K {
    /// As for [`Scaled::limbs`], which need no more than one token.
    type Scales = Head;

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn scales(group: *const u8, b: usize, r: usize) -> (Head, float32x4_t) {
        // SAFETY: the caller's promise.
        let head = unsafe { <Q3K as Scaled>::head(group, b, r) };
        let d = head.d;
        (head, d)
    }
    #[inline(always)]
    unsafe fn subtract(_: &Head, minus: float32x4_t, _: Acts) -> float32x4_t {
        minus
    }
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn chain(head: &Head, part: *const u8, r: usize, y: [int8x16_t; 2]) -> float32x4_t {
        // SAFETY: the caller's promise; this function has the features.
        unsafe {
            let [_, w] = Q3K::limbs(head, part, r);
            let mut sum = vdupq_n_s32(0);
            for (half, y) in y.into_iter().enumerate() {
                let w = &w[4 * half..];
                sum = Dotprod::lane::<0>(sum, w[0], y);
                sum = Dotprod::lane::<1>(sum, w[1], y);
                sum = Dotprod::lane::<2>(sum, w[2], y);
                sum = Dotprod::lane::<3>(sum, w[3], y);
            }
            Q3K::float(sum)
        }
    }
}

/// Scales 2s, 2s, 2s + 1, 2s + 1 of each row, for every unit s.
#[inline]
#[target_feature(enable = "neon")]
fn spread_pairs(scales: [int8x16_t; 4]) -> Weights {
    let mut all = [vdupq_n_s8(0); 8];
    for (two, scales) in all.as_chunks_mut::<2>().0.iter_mut().zip(scales) {
        *two = [spread(scales, [0, 0, 1, 1]), spread(scales, [2, 2, 3, 3])];
    }
    all
}

/// Four rows of a block.
pub(super) struct Head {
    d: float32x4_t,
    scales: Weights,
}

/// The d and the scales of rows `4 r .. 4 r + 4` of block `b`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn head<C: CodesOf16>(group: *const u8, b: usize, r: usize) -> (float32x4_t, [int8x16_t; 4]) {
    let (d, block) = at::<C>(b);
    // SAFETY: the caller's promise.
    unsafe { (halves(group.add(d + 2 * FOUR * r)), C::scales(group.add(block), r)) }
}

macro_rules! without_minima {
    () => {
        type Head = Head;
        const MINIMA: bool = false;

        fn at(b: usize) -> (usize, usize) {
            (at::<Self>(b).1, Self::BYTES)
        }
        #[inline(always)]
        fn part(group: *const u8, b: usize, l: usize) -> *const u8 {
            group.wrapping_add(at::<Self>(b).1 + Self::CODES + 64 * Self::PART_LINES * l)
        }

        functions! { [#[inline] #[target_feature(enable = "neon")]]
            d(head: &Head) -> float32x4_t { head.d }
            minima(_head: &Head) -> ([int8x16_t; 2], float32x4_t) { ([vdupq_n_s8(0); 2], vdupq_n_f32(0.0)) }
        }
    };
}

impl Scaled for Q6K {
    without_minima!();
    const TWO: bool = true;

    functions! { [#[inline] #[target_feature(enable = "neon")]]
        head(group: *const u8, b: usize, r: usize) -> Head {
            let (d, scales) = head::<Q6K>(group, b, r);
            Head { d, scales: spread_pairs(scales) }
        }
        limbs(head: &Head, part: *const u8, r: usize) -> [Weights; 2] {
            limbs(&Q6K::unpack(part, r), &head.scales)
        }
        raise(sum: int32x4_t) -> int32x4_t { vshlq_n_s32::<8>(sum) }
        float(sum: int32x4_t) -> float32x4_t { vcvtq_n_f32_s32::<2>(sum) }
    }
}

/// The product of -4 and -32 is no byte, but that of -4 and 32 is one: scales have the other sign, and so has d.
impl Scaled for Q3K {
    without_minima!();
    const TWO: bool = false;

    functions! { [#[inline] #[target_feature(enable = "neon")]]
        head(group: *const u8, b: usize, r: usize) -> Head {
            let (d, scales) = head::<Q3K>(group, b, r);
            Head { d: vnegq_f32(d), scales: spread_pairs(scales).map(|v| vnegq_s8(v)) }
        }
        limbs(head: &Head, part: *const u8, r: usize) -> [Weights; 2] {
            let w = Q3K::unpack(part, r);
            let product = std::array::from_fn(|s| vmulq_s8(w[s], head.scales[s]));
            [product, product]
        }
        raise(sum: int32x4_t) -> int32x4_t { sum }
        float(sum: int32x4_t) -> float32x4_t { vcvtq_f32_s32(sum) }
    }
}

macro_rules! layouts {
    ($module:ident, $proof:ident, $features:literal, $many:expr) => {
        pub(super) mod $module {
            use super::*;

            multiply!(proof::$proof::NEEDS, $features, Kernels, layout, TOKENS, C::FEW, one::<C>, $many);
            pub(in super::super) static LAYOUTS: &[Layout] = &[
                layout::<Q6K>(proof::$proof::NEEDS, multiply::<Q6K>, TOKENS),
                layout::<Q3K>(proof::$proof::NEEDS, multiply::<Q3K>, TOKENS),
            ];
        }
    };
}

layouts!(dotprod, Dotprod, "neon,dotprod", tile::<LanePair<Dotprod>, C>);
layouts!(i8mm, I8mm, "neon,dotprod,i8mm", tile::<SmmlaPair, C>);
