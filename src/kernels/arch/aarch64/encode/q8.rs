//! Q8_0, Q8_1 and Q8_K: bytes under one scale.

use std::arch::aarch64::*;

use trine_formats::types::{Part, TypeId, info};

use super::values::{ends, f16_bytes, first_extreme, largest, scaled, store};
use crate::scalar::definition;

/// Values of a block of Q8_0 and Q8_1.
const BLOCK: usize = 32;

/// The quants of one Q8_0 or Q8_1 block and its scale; `None` when the block is not plain.
#[inline]
#[target_feature(enable = "neon")]
fn q8_block(x: &[f32; BLOCK]) -> Option<([uint8x16_t; 2], f32)> {
    let d = largest(ends(x)?) / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    if !inverse.is_finite() {
        return None;
    }
    let sixteens = x.as_chunks::<16>().0;
    // Half away from zero.
    let q = [0, 1].map(|k| scaled(&sixteens[k], inverse, |v| vcvtaq_s32_f32(v)));
    Some((q, d))
}

/// Writes the quants of a block.
#[inline]
#[target_feature(enable = "neon")]
fn write(q: [uint8x16_t; 2], out: &mut [u8]) {
    for (q, out) in q.into_iter().zip(out.as_chunks_mut().0) {
        store(out, q);
    }
}

#[target_feature(enable = "neon")]
pub(super) fn q8_0(x: &[f32], out: &mut [u8]) {
    let blocks = out.as_chunks_mut::<{ info::Q8_0.bytes }>().0.iter_mut();
    for (out, x) in blocks.zip(x.as_chunks::<BLOCK>().0) {
        match q8_block(x) {
            Some((q, d)) => {
                out[..2].copy_from_slice(&f16_bytes(d));
                write(q, &mut out[2..]);
            }
            None => definition(TypeId::Q8_0)(x, None, out),
        }
    }
}

#[target_feature(enable = "neon")]
pub(super) fn q8_1(x: &[f32], out: &mut [u8]) {
    let blocks = out.as_chunks_mut::<{ info::Q8_1.bytes }>().0.iter_mut();
    for (out, x) in blocks.zip(x.as_chunks::<BLOCK>().0) {
        match q8_block(x) {
            Some((q, d)) => {
                let pairs = vpaddlq_s8(vreinterpretq_s8_u8(q[0]));
                let total = vaddlvq_s16(vpadalq_s8(pairs, vreinterpretq_s8_u8(q[1])));
                out[..2].copy_from_slice(&f16_bytes(d));
                out[2..4].copy_from_slice(&f16_bytes(total as f32 * d));
                write(q, &mut out[4..]);
            }
            None => definition(TypeId::Q8_1)(x, None, out),
        }
    }
}

/// Sums of sixteen bytes each.
#[inline]
#[target_feature(enable = "neon")]
fn sums(q: [uint8x16_t; 8]) -> int16x8_t {
    let pairs = q.map(|q| vpaddlq_s8(vreinterpretq_s8_u8(q)));
    let fours = [0, 2, 4, 6].map(|k| vpaddq_s16(pairs[k], pairs[k + 1]));
    let eights = [0, 2].map(|k| vpaddq_s16(fours[k], fours[k + 1]));
    vpaddq_s16(eights[0], eights[1])
}

#[target_feature(enable = "neon")]
pub(super) fn q8_k(x: &[f32], out: &mut [u8]) {
    const CODES: usize = info::Q8_K.at(Part::Codes);
    const SUMS: usize = info::Q8_K.at(Part::Sums);
    let blocks = out.as_chunks_mut::<{ info::Q8_K.bytes }>().0.iter_mut();
    for (out, x) in blocks.zip(x.as_chunks::<256>().0) {
        let extreme = ends(x).map_or(0.0, |ends| first_extreme(x, ends));
        let inverse = -127.0 / extreme;
        if extreme == 0.0 || !inverse.is_finite() {
            definition(TypeId::Q8_K)(x, None, out);
            continue;
        }
        out[..CODES].copy_from_slice(&(1.0 / inverse).to_le_bytes());
        let (codes, sums_of_16) = out[CODES..].split_at_mut(SUMS - CODES);
        let halves = x.as_chunks::<128>().0.iter();
        let halves = halves.zip(codes.as_chunks_mut::<128>().0);
        for ((x, codes), to) in halves.zip(sums_of_16.as_chunks_mut().0) {
            let mut q = [vdupq_n_u8(0); 8];
            let parts = x.as_chunks::<16>().0.iter();
            for ((q, x), to) in q.iter_mut().zip(parts).zip(codes.as_chunks_mut().0) {
                // Ties to even, as the definition's addition of 1.5 * 2^23 rounds.
                *q = scaled(x, inverse, |v| vcvtnq_s32_f32(v));
                store(to, *q);
            }
            store(to, vreinterpretq_u8_s16(sums(q)));
        }
    }
}
