//! TQ2_0 and TQ1_0. Both write digits 0, 1, 2 for -1, 0, +1 times the largest magnitude.

use std::arch::aarch64::*;
use std::array::from_fn;

use trine_formats::types::{Part, TypeId, info};

use super::values::{ends, f16_bytes, largest, scaled, store};
use crate::scalar::definition;

/// Weights per block of both types.
const BLOCK: usize = 256;
const TQ2_0: usize = info::TQ2_0.bytes;
const TQ1_0: usize = info::TQ1_0.bytes;

/// The scale of a block and its inverse; `None` where a value is not finite or the scale so small that its inverse is
/// not.
#[inline]
#[target_feature(enable = "neon")]
fn scale(x: &[f32; BLOCK]) -> Option<(f32, f32)> {
    let d = largest(ends(x)?);
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    inverse.is_finite().then_some((d, inverse))
}

/// The nearest of -1, 0 and 1, of sixteen values.
#[inline]
#[target_feature(enable = "neon")]
fn signs(x: &[f32; 16], inverse: f32) -> uint8x16_t {
    // Half away from zero; nothing is beyond 1.
    scaled(x, inverse, |v| vcvtaq_s32_f32(v))
}

/// The number of these digits less 1, the highest first, in bytes.
#[inline]
#[target_feature(enable = "neon")]
fn number<const BASE: u8, const DIGITS: usize>(signs: [uint8x16_t; DIGITS]) -> uint8x16_t {
    let mut n = signs[0];
    for &sign in &signs[1..] {
        n = vmlaq_u8(sign, n, vdupq_n_u8(BASE));
    }
    // Each digit has a 1 too little.
    let ones = const {
        let (mut ones, mut digit) = (0, 0);
        while digit < DIGITS {
            ones = ones * BASE + 1;
            digit += 1;
        }
        ones
    };
    vaddq_u8(n, vdupq_n_u8(ones))
}

#[target_feature(enable = "neon")]
pub(super) fn tq2_0(x: &[f32], row: &mut [u8]) {
    let blocks = row.as_chunks_mut::<TQ2_0>().0.iter_mut();
    for (out, x) in blocks.zip(x.as_chunks::<BLOCK>().0) {
        let Some((d, inverse)) = scale(x) else {
            definition(TypeId::TQ2_0)(x, None, out);
            continue;
        };
        let halves = x.as_chunks::<128>().0.iter();
        for (x, out) in halves.zip(out.as_chunks_mut::<32>().0) {
            let sixteens = x.as_chunks::<16>().0;
            for (k, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
                // Weights 32 apart share a byte, the last of them in its upper bits.
                let planes = from_fn(|p| signs(&sixteens[6 + k - 2 * p], inverse));
                store(out, number::<4, 4>(planes));
            }
        }
        out[info::TQ2_0.at(Part::Scale)..].copy_from_slice(&f16_bytes(d));
    }
}

/// `ceil(256 n / 243)` of numbers of five digits in base 3, in bytes: `n + ceil(13 n / 243)`.
#[inline]
#[target_feature(enable = "neon")]
fn fractions(n: uint8x16_t) -> uint8x16_t {
    // 270 / 65536 is above 1 / 243 by so little that no quotient changes up to 13 * 242 + 242. The instruction doubles
    // the product and takes its upper half.
    let divided = |above: uint16x8_t| vreinterpretq_u8_s16(vqdmulhq_n_s16(vreinterpretq_s16_u16(above), 135));
    let most = vdupq_n_u16(242);
    let low = divided(vmlal_u8(most, vget_low_u8(n), vdup_n_u8(13)));
    let high = divided(vmlal_high_u8(most, n, vdupq_n_u8(13)));
    vaddq_u8(n, vuzp1q_u8(low, high))
}

#[target_feature(enable = "neon")]
pub(super) fn tq1_0(x: &[f32], row: &mut [u8]) {
    let blocks = row.as_chunks_mut::<TQ1_0>().0.iter_mut();
    for (out, x) in blocks.zip(x.as_chunks::<BLOCK>().0) {
        let Some((d, inverse)) = scale(x) else {
            definition(TypeId::TQ1_0)(x, None, out);
            continue;
        };
        let sixteens = x.as_chunks::<16>().0;
        // 160 weights: digit t of byte m is weight 32 t + m; then 80 weights: 160 + 16 t + m.
        let fives = [(0, 2), (1, 2), (10, 1)].into_iter();
        for ((first, step), out) in fives.zip(out.as_chunks_mut().0) {
            let digits = from_fn(|t| signs(&sixteens[first + step * t], inverse));
            store(out, fractions(number::<3, 5>(digits)));
        }
        // 16 weights: 240 + 4 t + m, and a last digit of 0. Digit t is brought to the first lanes.
        let last = signs(&sixteens[15], inverse);
        let n =
            number::<3, 4>([last, vextq_u8::<4>(last, last), vextq_u8::<8>(last, last), vextq_u8::<12>(last, last)]);
        let bytes = fractions(vmulq_u8(n, vdupq_n_u8(3)));
        let bytes = vgetq_lane_u32::<0>(vreinterpretq_u32_u8(bytes));
        out[48..52].copy_from_slice(&bytes.to_le_bytes());
        out[info::TQ1_0.at(Part::Scale)..].copy_from_slice(&f16_bytes(d));
    }
}
