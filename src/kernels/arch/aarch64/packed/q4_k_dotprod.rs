//! Q4_K and Q5_K for ARM where there is `SDOT`: a unit of a part is one instruction, four products of each row.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by unit and token alike")]

use std::arch::aarch64::*;

use super::super::dot::{Dot, halves};
use super::FOUR;
use super::k_one::{Once, one};
use super::k_tile::{Scaled, TOKENS, limbs, spread, tile};
use super::lanes::{Acts, act_bytes, multiply};
use super::pair::{LanePair, SmmlaPair, Weights};
use super::q4_k::{CodesOf32, bytes_of, layout, scales_and_mins};
use crate::arch::functions::functions;
use crate::proof::{self, Dotprod, Proof};
use crate::shared::packed::Layout;
use crate::shared::packed::k_quants::ROWS;
use crate::shared::packed::k_quants::of_32::{CODES, DMIN, Q4K, Q5K, bytes};

/// Properties that differ between the types.
trait Codes: CodesOf32 {
    /// True if a code times three bits of a scale is a byte, so that the scales are what is split into limbs.
    const SPLIT: bool;
}

impl Codes for Q4K {
    const SPLIT: bool = true;
}

impl Codes for Q5K {
    const SPLIT: bool = false;
}

/// Minima of four rows: units 0 to 3 and 4 to 7, and what their sum is multiplied by.
type Minima = ([int8x16_t; 2], float32x4_t);

/// Factors of the sums, scales and minima of rows `4 r .. 4 r + 4` of a block.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn header(block: *const u8, r: usize) -> (float32x4_t, [uint8x16_t; 2], Minima) {
    // SAFETY: a block begins with d of 16 rows and of their minima, and has packed scales.
    unsafe {
        let [scales, mins] = scales_and_mins(block, r);
        let dmin = halves(block.add(DMIN + 2 * FOUR * r));
        let mins = mins.map(|v| vreinterpretq_s8_u8(v));
        (halves(block.add(2 * FOUR * r)), scales, (mins, dmin))
    }
}

/// Four rows of a block.
pub(super) struct Head {
    d: float32x4_t,
    /// The scale of each unit, in all bytes of a row.
    scales: Weights,
    minima: Minima,
}

impl<C: Codes> Scaled for C {
    type Head = Head;
    const TWO: bool = true;
    const MINIMA: bool = true;

    fn at(b: usize) -> (usize, usize) {
        (bytes::<C>() * b, bytes::<C>())
    }
    #[inline(always)]
    fn part(group: *const u8, b: usize, l: usize) -> *const u8 {
        group.wrapping_add(bytes::<C>() * b + CODES + C::PART * l)
    }

    functions! { [#[inline] #[target_feature(enable = "neon")]]
        head(group: *const u8, b: usize, r: usize) -> Head {
            let (d, packed, minima) = header(group.add(bytes::<C>() * b), r);
            let mut scales = [vdupq_n_s8(0); 8];
            for (s, scales) in scales.iter_mut().enumerate() {
                *scales = spread(vreinterpretq_s8_u8(packed[s / 4]), [s as u8 % 4; 4]);
            }
            Head { d, scales, minima }
        }
        d(head: &Head) -> float32x4_t { head.d }
        minima(head: &Head) -> Minima { head.minima }
        limbs(head: &Head, part: *const u8, r: usize) -> [Weights; 2] {
            let codes = C::unpack(part, r);
            if !C::SPLIT {
                return limbs(&codes, &head.scales);
            }
            let mut limbs = [[vdupq_n_s8(0); 8]; 2];
            for s in 0..8 {
                let scale = vreinterpretq_u8_s8(head.scales[s]);
                let (upper, lower) = (vshrq_n_u8::<3>(scale), vandq_u8(scale, vdupq_n_u8(7)));
                limbs[0][s] = vmulq_s8(codes[s], vreinterpretq_s8_u8(upper));
                limbs[1][s] = vmulq_s8(codes[s], vreinterpretq_s8_u8(lower));
            }
            limbs
        }
        raise(sum: int32x4_t) -> int32x4_t {
            if C::SPLIT { vshlq_n_s32::<3>(sum) } else { vshlq_n_s32::<8>(sum) }
        }
        float(sum: int32x4_t) -> float32x4_t { vcvtq_f32_s32(sum) }
    }
}

impl<C: Codes> Once for C {
    /// Differences of the scale of each unit and the next, and the minima.
    type Scales = ([int32x4_t; 8], Minima);
    const FEW: usize = 3;

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn scales(group: *const u8, b: usize, r: usize) -> (([int32x4_t; 8], Minima), float32x4_t) {
        // SAFETY: the caller's promise.
        let (d, packed, minima) = unsafe { header(group.add(bytes::<C>() * b), r) };
        let mut steps = [vdupq_n_s32(0); 8];
        for (four, scales) in steps.as_chunks_mut::<4>().0.iter_mut().zip(packed) {
            *four = bytes_of(scales);
        }
        for s in 0..7 {
            steps[s] = vsubq_s32(steps[s], steps[s + 1]);
        }
        ((steps, minima), d)
    }
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn subtract((_, (mins, dmin)): &([int32x4_t; 8], Minima), minus: float32x4_t, act: Acts) -> float32x4_t {
        // SAFETY: the caller has the block of a token; this function has the features.
        unsafe {
            let [upper, lower] = act.limbs(0);
            let sum = Dotprod::lane::<0>(vdupq_n_s32(0), mins[0], upper);
            let sum = vshlq_n_s32::<8>(Dotprod::lane::<1>(sum, mins[1], upper));
            let sum = Dotprod::lane::<2>(sum, mins[0], upper);
            let sum = vshlq_n_s32::<8>(Dotprod::lane::<3>(sum, mins[1], upper));
            let sum = Dotprod::lane::<0>(sum, mins[0], lower);
            let sum = Dotprod::lane::<1>(sum, mins[1], lower);
            let d = vmulq_n_f32(*dmin, act.scale(0));
            vsubq_f32(minus, vmulq_f32(d, vcvtq_f32_s32(sum)))
        }
    }
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn chain(
        (steps, _): &([int32x4_t; 8], Minima),
        part: *const u8,
        r: usize,
        y: [int8x16_t; 2],
    ) -> float32x4_t {
        // SAFETY: the caller's promise; this function has the features.
        unsafe {
            let w = C::unpack(part, r);
            let (mut all, mut sum) = (vdupq_n_s32(0), vdupq_n_s32(0));
            for (half, y) in y.into_iter().enumerate() {
                let (w, steps) = (&w[4 * half..], &steps[4 * half..]);
                all = Dotprod::lane::<0>(all, w[0], y);
                sum = vmlaq_s32(sum, all, steps[0]);
                all = Dotprod::lane::<1>(all, w[1], y);
                sum = vmlaq_s32(sum, all, steps[1]);
                all = Dotprod::lane::<2>(all, w[2], y);
                sum = vmlaq_s32(sum, all, steps[2]);
                all = Dotprod::lane::<3>(all, w[3], y);
                sum = vmlaq_s32(sum, all, steps[3]);
            }
            vcvtq_f32_s32(sum)
        }
    }
}

macro_rules! layouts {
    ($module:ident, $proof:ident, $features:literal, $many:expr) => {
        pub(super) mod $module {
            use super::*;

            multiply!(proof::$proof::NEEDS, $features, Codes, layout, TOKENS, C::FEW, one::<C>, $many);
            pub(in super::super) static LAYOUTS: &[Layout] = &[
                layout::<Q4K>(proof::$proof::NEEDS, multiply::<Q4K>, TOKENS),
                layout::<Q5K>(proof::$proof::NEEDS, multiply::<Q5K>, TOKENS),
            ];
        }
    };
}

layouts!(dotprod, Dotprod, "neon,dotprod", tile::<LanePair<Dotprod>, C>);
layouts!(i8mm, I8mm, "neon,dotprod,i8mm", tile::<SmmlaPair, C>);
