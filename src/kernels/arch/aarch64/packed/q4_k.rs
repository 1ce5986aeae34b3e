//! Q4_K and Q5_K for ARM: the bytes of [`crate::packed::k_quants::of_32`].
//!
//! A unit of a part is one [`Dot::lane`], four products of each row. All units are added to one register, which after each
//! addition is multiplied, in 32 bits, by what the scale exceeds the next by (summation by parts), so that no sum has to begin
//! at zero. Many tokens are taken by [`super::k_tile`] where there is `SDOT`.

#![allow(
    clippy::needless_range_loop,
    reason = "registers are indexed by unit and token alike"
)]

use std::arch::aarch64::*;

use trine_formats::types::TypeId;

use super::super::dot::{Dot, Dotprod, Neon, halves, load};
use super::k_tile::{self, Scaled, TOKENS, limbs, spread};
use super::lanes::{ACTS, Acts, FOURS, TILE, act_bytes, arrange, finish, multiply, start, step};
use super::pair::{Matrix, Rows, Weights};
use super::{FOUR, prefetch};
use crate::packed::k_quants::of_32::{CODES, DMIN, Layout32, Q4K, Q5K, SCALES, bytes, pack};
use crate::packed::k_quants::{BLOCK, CHAINS, ROWS};
use crate::packed::{Encoding, Layout, Multiply, check};

/// A type's codes.
trait CodesOf32: Layout32 {
    /// Whether a code times three bits of a scale is a byte, so that the scales are what is split into limbs.
    const SPLIT: bool;

    /// The codes of rows `4 r .. 4 r + 4` of a part, unit by unit.
    ///
    /// # Safety
    /// The part is readable.
    unsafe fn unpack(part: *const u8, r: usize) -> [int8x16_t; 8];
}

impl CodesOf32 for Q4K {
    const SPLIT: bool = true;

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
    const SPLIT: bool = false;

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
            let low = vshlq_u8(rest, vdupq_n_s8(-2 * p as i8));
            let low = vandq_u8(low, vdupq_n_u8(3));
            let odd = vorrq_u8(vshlq_n_u8::<2>(vshrq_n_u8::<5>(q)), low);
            codes[2 * p + 1] = vreinterpretq_s8_u8(odd);
        }
        codes
    }
}

const fn layout<C: CodesOf32>(multiply: Multiply, tile: usize) -> Layout {
    Layout {
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

/// What a block's header says of four rows.
struct Header {
    d: float32x4_t,
    /// What the scale of each unit exceeds the next by.
    steps: [int32x4_t; 8],
    minima: Minima,
}

/// The same for [`k_tile`]: the scale of each unit in all bytes of a row.
pub(super) struct Head {
    d: float32x4_t,
    scales: Weights,
    minima: Minima,
}

/// What a block's minima are of four rows.
struct Minima {
    d: float32x4_t,
    mins: [int32x4_t; 8],
}

/// Byte `K` of each dword.
#[inline]
#[target_feature(enable = "neon")]
fn bytes_of(v: uint8x16_t) -> [int32x4_t; 4] {
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
unsafe fn scales_and_mins(block: *const u8, r: usize) -> [[uint8x16_t; 2]; 2] {
    // SAFETY: a block has three lines of packed scales.
    let [a, b, c] = unsafe {
        [0, 1, 2].map(|k| vreinterpretq_u8_s8(load(block.add(SCALES + 64 * k + 4 * FOUR * r))))
    };
    let (low6, low4) = (vdupq_n_u8(0x3F), vdupq_n_u8(0x0F));
    let upper = |v| vandq_u8(vshrq_n_u8::<2>(v), vdupq_n_u8(0x30));
    [
        [vandq_u8(a, low6), vorrq_u8(vandq_u8(c, low4), upper(a))],
        [vandq_u8(b, low6), vorrq_u8(vshrq_n_u8::<4>(c), upper(b))],
    ]
}

/// The minima of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn minima(block: *const u8, r: usize, mins: [uint8x16_t; 2]) -> Minima {
    let mut all = [vdupq_n_s32(0); 8];
    for (four, mins) in all.as_chunks_mut::<4>().0.iter_mut().zip(mins) {
        *four = bytes_of(mins);
    }
    Minima {
        // SAFETY: a block has d of the minima of 16 rows.
        d: unsafe { halves(block.add(DMIN + 2 * FOUR * r)) },
        mins: all,
    }
}

/// The header of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn header(block: *const u8, r: usize) -> Header {
    // SAFETY: a block begins with d of 16 rows.
    let (d, [scales, mins]) =
        unsafe { (halves(block.add(2 * FOUR * r)), scales_and_mins(block, r)) };
    let mut steps = [vdupq_n_s32(0); 8];
    for (four, scales) in steps.as_chunks_mut::<4>().0.iter_mut().zip(scales) {
        *four = bytes_of(scales);
    }
    for s in 0..7 {
        steps[s] = vsubq_s32(steps[s], steps[s + 1]);
    }
    // SAFETY: the caller's promise.
    let minima = unsafe { minima(block, r, mins) };
    Header { d, steps, minima }
}

/// `minus - dmin * dy * sum(mins * sums)`.
#[inline]
#[target_feature(enable = "neon")]
fn subtract_mins(
    minus: float32x4_t,
    minima: &Minima,
    sums: [int32x4_t; 2],
    dy: float32x4_t,
) -> float32x4_t {
    let mut sum = vdupq_n_s32(0);
    for (mins, sums) in minima.mins.as_chunks::<4>().0.iter().zip(sums) {
        sum = vmlaq_laneq_s32::<0>(sum, mins[0], sums);
        sum = vmlaq_laneq_s32::<1>(sum, mins[1], sums);
        sum = vmlaq_laneq_s32::<2>(sum, mins[2], sums);
        sum = vmlaq_laneq_s32::<3>(sum, mins[3], sums);
    }
    let d = vmulq_f32(minima.d, dy);
    vsubq_f32(minus, vmulq_f32(d, vcvtq_f32_s32(sum)))
}

/// The integer of a chain: codes times activations times scales.
///
/// # Safety
/// The processor has the instructions of `D`.
#[inline(always)]
unsafe fn lane_sum<D: Dot>(h: &Header, codes: &[int8x16_t; 8], y: [int8x16_t; 2]) -> int32x4_t {
    // SAFETY: the caller's promise.
    unsafe {
        let (mut all, mut sum) = (vdupq_n_s32(0), vdupq_n_s32(0));
        for (half, y) in y.into_iter().enumerate() {
            let (codes, steps) = (&codes[4 * half..], &h.steps[4 * half..]);
            all = D::lane::<0>(all, codes[0], y);
            sum = vmlaq_s32(sum, all, steps[0]);
            all = D::lane::<1>(all, codes[1], y);
            sum = vmlaq_s32(sum, all, steps[1]);
            all = D::lane::<2>(all, codes[2], y);
            sum = vmlaq_s32(sum, all, steps[2]);
            all = D::lane::<3>(all, codes[3], y);
            sum = vmlaq_s32(sum, all, steps[3]);
        }
        sum
    }
}

/// Up to `T` tokens.
///
/// # Safety
/// The processor has the instructions of `D`; `check` has compared the lengths.
#[inline(always)]
unsafe fn tile<D: Dot, C: CodesOf32, const T: usize>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    ahead: usize,
    out: &mut [f32],
) {
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
                    token[r].minus = subtract_mins(token[r].minus, &h.minima, acts.sums(t), dy);
                    d[t] = vmulq_f32(h.d, dy);
                }
                for l in 0..CHAINS {
                    let codes = C::unpack(block.add(CODES + C::PART * l), r);
                    for (t, token) in tile.iter_mut().enumerate() {
                        let sum = lane_sum::<D>(&h, &codes, acts.quants(t, l));
                        token[r].chains[l] = step(token[r].chains[l], d[t], sum);
                    }
                }
            }
        }
        finish(tile, out);
    }
}

impl<C: CodesOf32> Scaled for C {
    type Head = Head;
    const TWO: bool = true;
    const MINIMA: bool = true;

    fn at(b: usize) -> (usize, usize) {
        (bytes::<C>() * b, bytes::<C>())
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn head(group: *const u8, b: usize, r: usize) -> Head {
        // SAFETY: the caller's promise; a block begins with d of 16 rows.
        unsafe {
            let block = group.add(bytes::<C>() * b);
            let [scales, mins] = scales_and_mins(block, r);
            let mut all = [vdupq_n_s8(0); 8];
            for (s, all) in all.iter_mut().enumerate() {
                *all = spread(vreinterpretq_s8_u8(scales[s / 4]), [s as u8 % 4; 4]);
            }
            Head {
                d: halves(block.add(2 * FOUR * r)),
                scales: all,
                minima: minima(block, r, mins),
            }
        }
    }
    #[inline(always)]
    unsafe fn d(head: &Head) -> float32x4_t {
        head.d
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn minus(head: &Head, minus: float32x4_t, sums: [int32x4_t; 2], y: f32) -> float32x4_t {
        subtract_mins(minus, &head.minima, sums, vdupq_n_f32(y))
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn limbs(head: &Head, group: *const u8, b: usize, r: usize, l: usize) -> [Weights; 2] {
        // SAFETY: the caller's promise; a block has eight parts.
        let codes = unsafe { C::unpack(group.add(bytes::<C>() * b + CODES + C::PART * l), r) };
        if !C::SPLIT {
            return limbs(&codes, &head.scales);
        }
        let part = |scale: fn(uint8x16_t) -> uint8x16_t| {
            std::array::from_fn(|s| {
                let scale = scale(vreinterpretq_u8_s8(head.scales[s]));
                vmulq_s8(codes[s], vreinterpretq_s8_u8(scale))
            })
        };
        [
            part(|v| vshrq_n_u8::<3>(v)),
            part(|v| vandq_u8(v, vdupq_n_u8(7))),
        ]
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn raise(sum: int32x4_t) -> int32x4_t {
        if C::SPLIT {
            vshlq_n_s32::<3>(sum)
        } else {
            vshlq_n_s32::<8>(sum)
        }
    }
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn float(sum: int32x4_t) -> float32x4_t {
        vcvtq_f32_s32(sum)
    }
}

macro_rules! layouts {
    ($module:ident, $features:literal, $tile:ident, $one:expr, $many:expr) => {
        pub(super) mod $module {
            use super::*;

            multiply!($features, CodesOf32, layout, $tile, $one, $many);
            pub(in super::super) static Q4_K: Layout = layout::<Q4K>(multiply::<Q4K>, $tile);
            pub(in super::super) static Q5_K: Layout = layout::<Q5K>(multiply::<Q5K>, $tile);
        }
    };
}

layouts!(
    neon,
    "neon",
    TILE,
    tile::<Neon, C, 1>,
    tile::<Neon, C, TILE>
);
layouts!(
    dotprod,
    "neon,dotprod",
    TOKENS,
    tile::<Dotprod, C, 1>,
    k_tile::tile::<Rows<Dotprod>, C>
);
layouts!(
    i8mm,
    "neon,dotprod,i8mm",
    TOKENS,
    tile::<Dotprod, C, 1>,
    k_tile::tile::<Matrix, C>
);
