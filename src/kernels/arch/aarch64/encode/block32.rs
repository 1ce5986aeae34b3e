//! Q4_0, Q4_1, Q5_0, Q5_1: blocks of 32 with one scale, and an offset or none.
//!
//! Without importance nothing is searched: the ends of a block decide its scale. With importance the search is the
//! one of `trine_formats`, on these vectors.

use std::arch::aarch64::*;

use trine_formats::types::{TypeId, encode_on, info};

use super::Neon;
use super::values::{FOUR, ends, f16_bytes, first_extreme, load, low_bytes, store};
use crate::scalar::definition;

/// Weights per block.
const BLOCK: usize = 32;

/// Writes the codes of a block: fifth bits where there are any, then nibbles.
#[inline]
#[target_feature(enable = "neon")]
fn write_codes<const FIVE: bool>([low, high]: [uint8x16_t; 2], mut out: &mut [u8]) {
    if FIVE {
        // One bit in each byte, moved to the byte's place among eight, and then summed by eights.
        const PLACES: [i8; 16] = [-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3];
        // SAFETY: sixteen bytes; no alignment is asked for.
        let places = unsafe { vld1q_s8(PLACES.as_ptr()) };
        let fifth = |codes| vshlq_u8(vandq_u8(codes, vdupq_n_u8(16)), places);
        let pairs = vpaddq_u8(fifth(low), fifth(high));
        let fours = vpaddq_u8(pairs, pairs);
        let bits = vgetq_lane_u32::<0>(vreinterpretq_u32_u8(vpaddq_u8(fours, fours)));
        let (to, rest) = out.split_at_mut(4);
        to.copy_from_slice(&bits.to_le_bytes());
        out = rest;
    }
    for out in out.as_chunks_mut().0 {
        // The low four bits of the one below the low four bits of the other.
        store(out, vsliq_n_u8::<4>(vandq_u8(low, vdupq_n_u8(15)), high));
    }
}

/// Codes from `(x - min) * inverse + half`, cut off, at most `top`. None is negative.
#[inline]
#[target_feature(enable = "neon")]
fn codes(x: &[f32; BLOCK], min: Option<f32>, inverse: f32, half: f32, top: u8) -> [uint8x16_t; 2] {
    let sixteens = x.as_chunks::<16>().0;
    [0, 1].map(|k| {
        let mut codes = [vdupq_n_s32(0); 4];
        for (code, x) in codes.iter_mut().zip(sixteens[k].as_chunks::<FOUR>().0) {
            let mut v = load(x);
            if let Some(min) = min {
                v = vsubq_f32(v, vdupq_n_f32(min));
            }
            // Each operation is rounded by itself.
            *code = vcvtq_s32_f32(vaddq_f32(vmulq_n_f32(v, inverse), vdupq_n_f32(half)));
        }
        vminq_u8(low_bytes(codes), vdupq_n_u8(top))
    })
}

/// The extreme element becomes code 0.
#[inline]
#[target_feature(enable = "neon")]
fn plain_symmetric<const FIVE: bool>(x: &[f32; BLOCK], out: &mut [u8]) -> Option<()> {
    let half = if FIVE { 16.0 } else { 8.0 };
    let extreme = first_extreme(x, ends(x)?);
    let d = if extreme == 0.0 { 0.0 } else { extreme } / -half;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    if !inverse.is_finite() {
        return None;
    }
    out[..2].copy_from_slice(&f16_bytes(d));
    let codes = codes(x, None, inverse, half + 0.5, 2 * half as u8 - 1);
    write_codes::<FIVE>(codes, &mut out[2..]);
    Some(())
}

/// Codes evenly between the smallest and the largest element.
#[inline]
#[target_feature(enable = "neon")]
fn plain_affine<const FIVE: bool>(x: &[f32; BLOCK], out: &mut [u8]) -> Option<()> {
    let top = if FIVE { 31.0 } else { 15.0 };
    // Of zeros with two signs the definition takes the first.
    let first = |end: f32| x.iter().copied().find(|&v| v == end).unwrap_or(end);
    let signed = |end| if end == 0.0 { first(end) } else { end };
    let (min, max) = ends(x)?;
    let (min, max) = (signed(min), signed(max));
    let d = (max - min) / top;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    if !(d.is_finite() && inverse.is_finite()) {
        return None;
    }
    out[..2].copy_from_slice(&f16_bytes(d));
    out[2..4].copy_from_slice(&f16_bytes(min));
    let codes = codes(x, Some(min), inverse, 0.5, top as u8);
    write_codes::<FIVE>(codes, &mut out[4..]);
    Some(())
}

macro_rules! encoders {
    ($($name:ident: $ty:ident, $plain:ident::<$five:literal>;)*) => { $(
        #[target_feature(enable = "neon")]
        pub(super) fn $name(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
            if importance.is_some() {
                return encode_on::$name(Neon::here(), x, importance, row);
            }
            let blocks = row.as_chunks_mut::<{ info::$ty.bytes }>().0.iter_mut();
            for (out, x) in blocks.zip(x.as_chunks::<BLOCK>().0) {
                if $plain::<$five>(x, out).is_none() {
                    definition(TypeId::$ty)(x, None, out);
                }
            }
        }
    )* };
}

encoders! {
    q4_0: Q4_0, plain_symmetric::<false>;
    q4_1: Q4_1, plain_affine::<false>;
    q5_0: Q5_0, plain_symmetric::<true>;
    q5_1: Q5_1, plain_affine::<true>;
}
