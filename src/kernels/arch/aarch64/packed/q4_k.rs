//! Q4_K and Q5_K for ARM: the bytes of [`crate::shared::packed::k_quants::of_32`], and what there is for them without `SDOT`.
//!
//! A unit of a part is one [`Dot::lane`], four products of each row, times the scale in 32 bits.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by unit and token alike")]

use std::arch::aarch64::*;

use trine_formats::types::TypeId;

use super::super::dot::{Dot, halves, insert_behind, load};
use super::lanes::{ACTS, Acts, FOURS, TILE, act_bytes, arrange, finish, multiply, start, step};
use super::{FOUR, prefetch};
use crate::proof::{Needs, Neon, Proof};
use crate::shared::packed::k_quants::of_32::{CODES, DMIN, Layout32, Q4K, Q5K, SCALES, bytes, pack};
use crate::shared::packed::k_quants::{BLOCK, CHAINS, ROWS};
use crate::shared::packed::{Encoding, Layout, Multiply};

/// A type's codes.
pub(super) trait CodesOf32: Layout32 {
    /// The codes of rows `4 r .. 4 r + 4` of a part, unit by unit.
    ///
    /// # Safety
    /// The part is readable.
    unsafe fn unpack(part: *const u8, r: usize) -> [int8x16_t; 8];
}

impl CodesOf32 for Q4K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn unpack(part: *const u8, r: usize) -> [int8x16_t; 8] {
        let mut codes = [vdupq_n_s8(0); 8];
        for p in 0..4 {
            // SAFETY: a part has four lines.
            let q = vreinterpretq_u8_s8(unsafe { load(part.add(64 * p + 4 * FOUR * r)) });
            codes[2 * p] = vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15)));
            codes[2 * p + 1] = vreinterpretq_s8_u8(vshrq_n_u8::<4>(q));
        }
        codes
    }
}

impl CodesOf32 for Q5K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn unpack(part: *const u8, r: usize) -> [int8x16_t; 8] {
        let mut codes = [vdupq_n_s8(0); 8];
        // SAFETY: a part has five lines.
        let rest = vreinterpretq_u8_s8(unsafe { load(part.add(256 + 4 * FOUR * r)) });
        for p in 0..4 {
            // SAFETY: a part has five lines; this is one of the first four.
            let q = vreinterpretq_u8_s8(unsafe { load(part.add(64 * p + 4 * FOUR * r)) });
            codes[2 * p] = vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(0x1F)));
            // Three bits, and behind them two.
            let low = vshlq_u8(rest, vdupq_n_s8(6 - 2 * p as i8));
            let odd = vshrq_n_u8::<3>(insert_behind::<3>(q, low));
            codes[2 * p + 1] = vreinterpretq_s8_u8(odd);
        }
        codes
    }
}

pub(super) const fn layout<C: CodesOf32>(needs: Needs, multiply: Multiply, tile: usize) -> Layout {
    Layout {
        types: C::TYPES,
        needs,
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: |n| n / BLOCK * bytes::<C>(),
        pack: pack::<C>,
        acts: ACTS,
        act_bytes,
        arrange,
        multiply,
        tile,
    }
}

/// A block's header for four rows.
struct Header {
    d: float32x4_t,
    dmin: float32x4_t,
    scales: [int32x4_t; 8],
    mins: [int32x4_t; 8],
}

/// Byte `K` of each dword.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn bytes_of(v: uint8x16_t) -> [int32x4_t; 4] {
    let v = vreinterpretq_u32_u8(v);
    let low = vdupq_n_u32(0xFF);
    let all = [
        vandq_u32(v, low),
        vandq_u32(vshrq_n_u32::<8>(v), low),
        vandq_u32(vshrq_n_u32::<16>(v), low),
        vshrq_n_u32::<24>(v),
    ];
    all.map(|v| vreinterpretq_s32_u32(v))
}

/// Scales and minima of rows `4 r .. 4 r + 4`, units 0 to 3 and 4 to 7, as bytes.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn scales_and_mins(block: *const u8, r: usize) -> [[uint8x16_t; 2]; 2] {
    // SAFETY: a block has three lines of packed scales.
    let [a, b, c] = unsafe { [0, 1, 2].map(|k| vreinterpretq_u8_s8(load(block.add(SCALES + 64 * k + 4 * FOUR * r)))) };
    let (low6, low4) = (vdupq_n_u8(0x3F), vdupq_n_u8(0x0F));
    let upper = |v| vandq_u8(vshrq_n_u8::<2>(v), vdupq_n_u8(0x30));
    [
        [vandq_u8(a, low6), vorrq_u8(vandq_u8(c, low4), upper(a))],
        [vandq_u8(b, low6), vorrq_u8(vshrq_n_u8::<4>(c), upper(b))],
    ]
}

/// The header of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn header(block: *const u8, r: usize) -> Header {
    // SAFETY: a block has d, dmin and packed scales of 16 rows.
    let (d, dmin, [scales, mins]) =
        unsafe { (halves(block.add(2 * FOUR * r)), halves(block.add(DMIN + 2 * FOUR * r)), scales_and_mins(block, r)) };
    let [s0, s1, s2, s3] = bytes_of(scales[0]);
    let [s4, s5, s6, s7] = bytes_of(scales[1]);
    let [m0, m1, m2, m3] = bytes_of(mins[0]);
    let [m4, m5, m6, m7] = bytes_of(mins[1]);
    Header { d, dmin, scales: [s0, s1, s2, s3, s4, s5, s6, s7], mins: [m0, m1, m2, m3, m4, m5, m6, m7] }
}

/// `minus - dmin * dy * sum(mins * sums)`.
#[inline]
#[target_feature(enable = "neon")]
fn subtract_mins(minus: float32x4_t, h: &Header, sums: [int32x4_t; 2], dy: float32x4_t) -> float32x4_t {
    let mut sum = vdupq_n_s32(0);
    for (mins, sums) in h.mins.as_chunks::<4>().0.iter().zip(sums) {
        sum = vmlaq_laneq_s32::<0>(sum, mins[0], sums);
        sum = vmlaq_laneq_s32::<1>(sum, mins[1], sums);
        sum = vmlaq_laneq_s32::<2>(sum, mins[2], sums);
        sum = vmlaq_laneq_s32::<3>(sum, mins[3], sums);
    }
    let d = vmulq_f32(h.dmin, dy);
    vsubq_f32(minus, vmulq_f32(d, vcvtq_f32_s32(sum)))
}

/// The integer of a chain: codes times activations times scales.
#[inline]
#[target_feature(enable = "neon")]
fn lane_sum(h: &Header, codes: &[int8x16_t; 8], y: [int8x16_t; 2]) -> int32x4_t {
    // SAFETY: this function has the feature.
    unsafe {
        let zero = vdupq_n_s32(0);
        let mut sum = zero;
        for (half, y) in y.into_iter().enumerate() {
            let (codes, scales) = (&codes[4 * half..], &h.scales[4 * half..]);
            sum = vmlaq_s32(sum, Neon::lane::<0>(zero, codes[0], y), scales[0]);
            sum = vmlaq_s32(sum, Neon::lane::<1>(zero, codes[1], y), scales[1]);
            sum = vmlaq_s32(sum, Neon::lane::<2>(zero, codes[2], y), scales[2]);
            sum = vmlaq_s32(sum, Neon::lane::<3>(zero, codes[3], y), scales[3]);
        }
        sum
    }
}

/// Up to `T` tokens.
///
/// # Safety
/// `check` has compared the lengths.
#[target_feature(enable = "neon")]
unsafe fn tile<C: CodesOf32, const T: usize>(group: &[u8], acts: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    // SAFETY: every block of the group and of the activations is there, as the caller has checked.
    unsafe {
        let mut tile = start::<T>();
        let tile = &mut tile[..tokens];
        let mut d = [vdupq_n_f32(0.0); T];
        for (b, block) in group.chunks_exact(bytes::<C>()).enumerate() {
            prefetch(block.as_ptr(), block.len(), ahead);
            let (block, acts) = (block.as_ptr(), Acts::new(acts, act_bytes(n), b));
            for r in 0..FOURS {
                let h = header(block, r);
                for (t, token) in tile.iter_mut().enumerate() {
                    let dy = vdupq_n_f32(acts.scale(t));
                    token[r].minus = subtract_mins(token[r].minus, &h, acts.sums(t), dy);
                    d[t] = vmulq_f32(h.d, dy);
                }
                for l in 0..CHAINS {
                    let codes = C::unpack(block.add(CODES + C::PART * l), r);
                    for (t, token) in tile.iter_mut().enumerate() {
                        let sum = lane_sum(&h, &codes, acts.quants(t, l));
                        token[r].chains[l] = step(token[r].chains[l], d[t], sum);
                    }
                }
            }
        }
        finish(tile, out);
    }
}

multiply!(Neon::NEEDS, "neon", CodesOf32, layout, TILE, 1, tile::<C, 1>, tile::<C, TILE>);
pub(super) static LAYOUTS: &[Layout] =
    &[layout::<Q4K>(Neon::NEEDS, multiply::<Q4K>, TILE), layout::<Q5K>(Neon::NEEDS, multiply::<Q5K>, TILE)];
