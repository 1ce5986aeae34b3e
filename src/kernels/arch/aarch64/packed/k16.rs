//! Q6_K and Q3_K for ARM: the bytes of [`crate::shared::packed::k_quants::of_16`], and what there is for them without `SDOT`.
//!
//! The four elements of a unit have two scales, so that [`Dot::lane`](super::super::dot::Dot) would sum too much.
//! Products are summed in pairs of 16 bits instead, which one multiplication brings to 32 bits with their scales.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by unit and token alike")]

use std::arch::aarch64::*;

use trine_formats::types::TypeId;

use super::super::dot::{add_scaled_pairs, halves, insert_behind, load};
use super::lanes::{ACTS, Acts, FOURS, TILE, act_bytes, arrange, finish, multiply, start, step};
use super::pair::Weights;
use super::{FOUR, prefetch};
use crate::proof::{Needs, Neon, Proof};
use crate::shared::packed::k_quants::of_16::{Layout16, Q3K, Q6K, at, group_bytes, pack};
use crate::shared::packed::k_quants::{BLOCK, CHAINS, ROWS};
use crate::shared::packed::{Encoding, Layout, Multiply};

/// A type's codes.
pub(super) trait CodesOf16: Layout16 {
    /// The scales of rows `4 r .. 4 r + 4`, register g: 4g .. 4g + 3 as bytes.
    ///
    /// # Safety
    /// The block is readable.
    unsafe fn scales(block: *const u8, r: usize) -> [int8x16_t; 4];

    /// The weights of rows `4 r .. 4 r + 4` of a part, unit by unit, as many times as large as [`Self::whole`] takes
    /// back.
    ///
    /// # Safety
    /// The part is readable.
    unsafe fn unpack(part: *const u8, r: usize) -> Weights;

    /// The weights themselves.
    ///
    /// # Safety
    /// The processor has NEON.
    unsafe fn whole(w: int8x16_t) -> int8x16_t;
}

/// Lines `0 .. L` of a block or part, rows `4 r .. 4 r + 4`.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn lines<const L: usize>(p: *const u8, r: usize) -> [uint8x16_t; L] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|k| vreinterpretq_u8_s8(unsafe { load(p.add(64 * k + 4 * FOUR * r)) }))
}

/// The upper two bits of three lines, one behind the other from the top on; the lowest two bits are anything.
#[inline]
#[target_feature(enable = "neon")]
fn upper(a: uint8x16_t, b: uint8x16_t, c: uint8x16_t) -> uint8x16_t {
    insert_behind::<4>(insert_behind::<2>(a, b), c)
}

impl CodesOf16 for Q6K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn scales(block: *const u8, r: usize) -> [int8x16_t; 4] {
        // SAFETY: a block begins with four lines of scales.
        unsafe { lines::<4>(block, r) }.map(|s| vreinterpretq_s8_u8(s))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn unpack(part: *const u8, r: usize) -> Weights {
        // SAFETY: a part has six lines.
        let [a, b, c, d, e, f] = unsafe { lines::<6>(part, r) };
        let own = |v| vshlq_n_u8::<2>(v);
        let rest = |v| vandq_u8(v, vdupq_n_u8(0xFC));
        let (six, seven) = (rest(upper(a, b, c)), rest(upper(d, e, f)));
        [own(a), own(b), own(c), own(d), own(e), own(f), six, seven].map(|v| vreinterpretq_s8_u8(v))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn whole(w: int8x16_t) -> int8x16_t {
        vshrq_n_s8::<2>(w)
    }
}

impl CodesOf16 for Q3K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn scales(block: *const u8, r: usize) -> [int8x16_t; 4] {
        // SAFETY: a block begins with three lines of scales.
        let [a, b, c] = unsafe { lines::<3>(block, r) };
        let join = |low, high| {
            let code = vorrq_u8(low, vandq_u8(high, vdupq_n_u8(0x30)));
            vsubq_s8(vreinterpretq_s8_u8(code), vdupq_n_s8(32))
        };
        let low4 = |v| vandq_u8(v, vdupq_n_u8(15));
        [
            join(low4(a), vshlq_n_u8::<4>(c)),
            join(low4(b), vshlq_n_u8::<2>(c)),
            join(vshrq_n_u8::<4>(a), c),
            join(vshrq_n_u8::<4>(b), vshrq_n_u8::<2>(c)),
        ]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn unpack(part: *const u8, r: usize) -> Weights {
        // SAFETY: a part has three lines.
        let [a, b, c] = unsafe { lines::<3>(part, r) };
        // The upper three bits with their sign.
        let top = |v| vshrq_n_s8::<5>(vreinterpretq_s8_u8(v));
        let low = |v| top(vshlq_n_u8::<5>(v));
        let high = |v| top(vshlq_n_u8::<2>(v));
        let rest = upper(a, b, c);
        [low(a), low(b), low(c), high(a), high(b), high(c), top(rest), top(vshlq_n_u8::<3>(rest))]
    }

    #[inline(always)]
    unsafe fn whole(w: int8x16_t) -> int8x16_t {
        w
    }
}

pub(super) const fn layout<C: CodesOf16>(needs: Needs, multiply: Multiply, tile: usize) -> Layout {
    Layout {
        types: C::TYPES,
        needs,
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: group_bytes::<C>,
        pack: pack::<C>,
        acts: ACTS,
        act_bytes,
        arrange,
        multiply,
        tile,
    }
}

/// Scales 2s and 2s + 1 of each row, for every unit s.
#[inline]
#[target_feature(enable = "neon")]
fn pairs(scales: [int8x16_t; 4]) -> [int16x8_t; 8] {
    let mut all = [vdupq_n_s16(0); 8];
    for (two, scales) in all.as_chunks_mut::<2>().0.iter_mut().zip(scales) {
        let words = vreinterpretq_s16_s8(scales);
        // The lower halves of the dwords, and the upper ones.
        let (lower, higher) = (vuzp1q_s16(words, words), vuzp2q_s16(words, words));
        *two = [lower, higher].map(|v| vmovl_s8(vget_low_s8(vreinterpretq_s8_s16(v))));
    }
    all
}

/// The integer of a chain: weights times activations times scales.
#[inline]
#[target_feature(enable = "neon")]
fn lane_sum(scales: &[int16x8_t; 8], weights: &[int8x16_t; 8], y: [int8x16_t; 2]) -> int32x4_t {
    let mut sums = [vdupq_n_s32(0); 2];
    macro_rules! unit {
        ($half:literal, $lane:literal) => {
            let y = vdupq_laneq_s32::<$lane>(vreinterpretq_s32_s8(y[$half]));
            let (y, w) = (vreinterpretq_s8_s32(y), weights[4 * $half + $lane]);
            // Two products of at most 32 * 128 each.
            sums = add_scaled_pairs(sums, w, y, scales[4 * $half + $lane]);
        };
    }
    unit!(0, 0);
    unit!(0, 1);
    unit!(0, 2);
    unit!(0, 3);
    unit!(1, 0);
    unit!(1, 1);
    unit!(1, 2);
    unit!(1, 3);
    vpaddq_s32(sums[0], sums[1])
}

/// Up to `T` tokens.
///
/// # Safety
/// `check` has compared the lengths.
#[target_feature(enable = "neon")]
unsafe fn tile<C: CodesOf16, const T: usize>(group: &[u8], acts: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let mut tile = start::<T>();
    let tile = &mut tile[..tokens];
    let mut d = [vdupq_n_f32(0.0); T];
    for b in 0..n / BLOCK {
        let acts = Acts::new(acts, act_bytes(n), b);
        let (d_at, block) = at::<C>(b);
        prefetch(group[block..].as_ptr(), C::BYTES, ahead);
        for r in 0..FOURS {
            // SAFETY: the block is there, as the caller has checked.
            let (dw, scales, parts) = unsafe {
                let block = group.as_ptr().add(block);
                let dw = halves(group.as_ptr().add(d_at + 2 * FOUR * r));
                (dw, pairs(C::scales(block, r)), block.add(C::CODES))
            };
            for (t, d) in d.iter_mut().enumerate().take(tokens) {
                // SAFETY: the activations have the block, as the caller has checked.
                *d = vmulq_f32(dw, vdupq_n_f32(unsafe { acts.scale(t) }));
            }
            for l in 0..CHAINS {
                // SAFETY: a block has eight parts.
                let weights = unsafe { C::unpack(parts.add(64 * C::PART_LINES * l), r).map(|w| C::whole(w)) };
                for (t, token) in tile.iter_mut().enumerate() {
                    // SAFETY: the activations have the block, as the caller has checked.
                    let sum = lane_sum(&scales, &weights, unsafe { acts.quants(t, l) });
                    token[r].chains[l] = step(token[r].chains[l], d[t], sum);
                }
            }
        }
    }
    finish(tile, out);
}

multiply!(Neon::NEEDS, "neon", CodesOf16, layout, TILE, 1, tile::<C, 1>, tile::<C, TILE>);
pub(super) static LAYOUTS: &[Layout] =
    &[layout::<Q6K>(Neon::NEEDS, multiply::<Q6K>, TILE), layout::<Q3K>(Neon::NEEDS, multiply::<Q3K>, TILE)];
