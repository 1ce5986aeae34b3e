//! Q6_K and Q3_K for ARM where there is `SDOT`.
//!
//! With one token, what the two scales of a unit are to be multiplied by are two sums of products: that of all four elements,
//! and that of the first two, for which the activations of the others are masked. Both, of all units, are added to one
//! register. After each addition this is multiplied by what its scale exceeds the next by (summation by parts), so that no
//! sum has to begin at zero.

#![allow(
    clippy::needless_range_loop,
    reason = "registers are indexed by unit and line alike"
)]

use std::arch::aarch64::*;

use super::super::dot::{Dot, Dotprod, halves, load};
use super::k_tile::{Scaled, TOKENS, limbs, spread, tile};
use super::k16::{CodesOf16, layout};
use super::lanes::{Acts, act_bytes, finish, multiply, start};
use super::pair::{Matrix, Rows, Weights};
use super::{FOUR, prefetch};
use crate::packed::k_quants::of_16::{Layout16, Q3K, Q6K, at};
use crate::packed::k_quants::{BLOCK, CHAINS, ROWS};
use crate::packed::{Layout, check};

/// A type's products of one token.
///
/// # Safety
/// All functions ask for `SDOT`.
trait Codes: CodesOf16 + Scaled {
    /// What is made of the scales of four rows of a block.
    type Scales;

    unsafe fn prepare(scales: [int8x16_t; 4]) -> Self::Scales;
    /// The integer of a chain, as many times too large as [`CodesOf16::unpack`] makes the weights.
    unsafe fn chain(scales: &Self::Scales, w: &Weights, y: [int8x16_t; 2]) -> int32x4_t;
}

/// Which bytes of a dword of scales, first and second of an even unit, first and second of the next, are added how many
/// times: for the first two elements and for all four of the even unit, the same of the odd one.
static FACTORS: [[i8; 4]; 4] = [[1, -2, 0, 0], [0, 1, -1, 1], [0, 0, 1, -2], [0, 0, 0, 1]];
/// The same, of the dword that follows, for all four of the odd unit.
static FACTORS_OF_NEXT: [[i8; 4]; 4] = [[-1, 1, 0, 0], [0; 4], [0; 4], [0; 4]];

impl Codes for Q6K {
    /// What the scale of each sum exceeds the next by: the first two elements of a unit, then all of it.
    type Scales = [int32x4_t; 16];

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn prepare(scales: [int8x16_t; 4]) -> [int32x4_t; 16] {
        let zero = vdupq_n_s32(0);
        let mut all = [zero; 16];
        // SAFETY: 16 bytes each; this function has the features.
        unsafe {
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
        }
        all
    }

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn chain(scales: &[int32x4_t; 16], w: &Weights, y: [int8x16_t; 2]) -> int32x4_t {
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
        sum
    }
}

impl Codes for Q3K {
    /// Less than nothing, as for [`Scaled::limbs`].
    type Scales = Weights;

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn prepare(scales: [int8x16_t; 4]) -> Weights {
        spread_pairs(scales).map(|v| vnegq_s8(v))
    }

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn chain(scales: &Weights, w: &Weights, y: [int8x16_t; 2]) -> int32x4_t {
        let mut sum = vdupq_n_s32(0);
        for (half, y) in y.into_iter().enumerate() {
            let (w, scales) = (&w[4 * half..], &scales[4 * half..]);
            // SAFETY: this function has the features.
            unsafe {
                sum = Dotprod::lane::<0>(sum, vmulq_s8(w[0], scales[0]), y);
                sum = Dotprod::lane::<1>(sum, vmulq_s8(w[1], scales[1]), y);
                sum = Dotprod::lane::<2>(sum, vmulq_s8(w[2], scales[2]), y);
                sum = Dotprod::lane::<3>(sum, vmulq_s8(w[3], scales[3]), y);
            }
        }
        sum
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

/// The part of chain `l` in block `b`.
#[inline(always)]
fn part<C: Layout16>(group: *const u8, b: usize, l: usize) -> *const u8 {
    group.wrapping_add(at::<C>(b).1 + C::CODES + 64 * C::PART_LINES * l)
}

/// The d and the scales of rows `4 r .. 4 r + 4` of block `b`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn head<C: CodesOf16>(
    group: *const u8,
    b: usize,
    r: usize,
) -> (float32x4_t, [int8x16_t; 4]) {
    let (d, block) = at::<C>(b);
    // SAFETY: the caller's promise.
    unsafe {
        (
            halves(group.add(d + 2 * FOUR * r)),
            C::scales(group.add(block), r),
        )
    }
}

macro_rules! without_minima {
    () => {
        type Head = Head;
        const MINIMA: bool = false;

        fn at(b: usize) -> (usize, usize) {
            (at::<Self>(b).1, Self::BYTES)
        }
        #[inline(always)]
        unsafe fn d(head: &Head) -> float32x4_t {
            head.d
        }
        #[inline(always)]
        unsafe fn minus(_: &Head, minus: float32x4_t, _: [int32x4_t; 2], _: f32) -> float32x4_t {
            minus
        }
    };
}

impl Scaled for Q6K {
    without_minima!();
    const TWO: bool = true;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(group: *const u8, b: usize, r: usize) -> Head {
        // SAFETY: the caller's promise.
        let (d, scales) = unsafe { head::<Q6K>(group, b, r) };
        Head {
            d,
            scales: spread_pairs(scales),
        }
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn limbs(head: &Head, group: *const u8, b: usize, r: usize, l: usize) -> [Weights; 2] {
        // SAFETY: the caller's promise.
        limbs(
            &unsafe { Q6K::unpack(part::<Q6K>(group, b, l), r) },
            &head.scales,
        )
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn raise(sum: int32x4_t) -> int32x4_t {
        vshlq_n_s32::<8>(sum)
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn float(sum: int32x4_t) -> float32x4_t {
        vcvtq_n_f32_s32::<2>(sum)
    }
}

/// The product of -4 and -32 is no byte, but that of -4 and 32 is one: scales have the other sign, and so has d.
impl Scaled for Q3K {
    without_minima!();
    const TWO: bool = false;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(group: *const u8, b: usize, r: usize) -> Head {
        // SAFETY: the caller's promise.
        let (d, scales) = unsafe { head::<Q3K>(group, b, r) };
        Head {
            d: vnegq_f32(d),
            scales: spread_pairs(scales).map(|v| vnegq_s8(v)),
        }
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn limbs(head: &Head, group: *const u8, b: usize, r: usize, l: usize) -> [Weights; 2] {
        // SAFETY: the caller's promise.
        let w = unsafe { Q3K::unpack(part::<Q3K>(group, b, l), r) };
        let product = std::array::from_fn(|s| vmulq_s8(w[s], head.scales[s]));
        [product, product]
    }
    #[inline(always)]
    unsafe fn raise(sum: int32x4_t) -> int32x4_t {
        sum
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn float(sum: int32x4_t) -> float32x4_t {
        vcvtq_f32_s32(sum)
    }
}

/// One token.
///
/// # Safety
/// The processor has `SDOT`; `check` has compared the lengths.
#[inline(always)]
unsafe fn one<C: Codes>(group: &[u8], act: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    // SAFETY: every block of the group and of the activations is there, as the caller has checked.
    unsafe {
        let mut tile = start::<1>();
        for b in 0..n / BLOCK {
            let act = Acts::new(act, act_bytes(n), b);
            let (start, bytes) = C::at(b);
            prefetch(group[start..].as_ptr(), bytes, ahead);
            for (r, token) in tile[0].iter_mut().enumerate() {
                let group = group.as_ptr();
                let (_, scales) = head::<C>(group, b, r);
                let d = vmulq_n_f32(C::d(&<C as Scaled>::head(group, b, r)), act.scale(0));
                let scales = C::prepare(scales);
                for l in 0..CHAINS {
                    let w = C::unpack(part::<C>(group, b, l), r);
                    let sum = C::float(C::chain(&scales, &w, act.quants(0, l)));
                    token.chains[l] = vaddq_f32(token.chains[l], vmulq_f32(d, sum));
                }
            }
        }
        finish(&tile, out);
    }
}

macro_rules! layouts {
    ($module:ident, $features:literal, $many:expr) => {
        pub(super) mod $module {
            use super::*;

            multiply!($features, Codes, layout, TOKENS, one::<C>, $many);
            pub(in super::super) static Q6_K: Layout = layout::<Q6K>(multiply::<Q6K>, TOKENS);
            pub(in super::super) static Q3_K: Layout = layout::<Q3K>(multiply::<Q3K>, TOKENS);
        }
    };
}

layouts!(dotprod, "neon,dotprod", tile::<Rows<Dotprod>, C>);
layouts!(i8mm, "neon,dotprod,i8mm", tile::<Matrix, C>);
