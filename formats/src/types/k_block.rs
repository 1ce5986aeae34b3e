//! What the K-quants share: super-blocks of 256 weights, walked block by block, rounding to a decided
//! scale, and the eight-lane integer dot product.

use super::num::nearest_int;
use super::q8_k;

/// Weights in a super-block.
pub(super) const BLOCK: usize = 256;

/// Decodes a row block by block.
#[inline(always)]
pub(super) fn decode_blocks<const BYTES: usize>(
    row: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; BLOCK]),
) {
    for (block, y) in row
        .as_chunks::<BYTES>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<BLOCK>().0)
    {
        decode(block, y);
    }
}

/// Encodes a row block by block; `encode` gets the block's own stretch of the importance.
#[inline(always)]
pub(super) fn encode_blocks<const BYTES: usize>(
    x: &[f32],
    importance: Option<&[f32]>,
    row: &mut [u8],
    encode: impl Fn(&[f32; BLOCK], Option<&[f32; BLOCK]>, &mut [u8; BYTES]),
) {
    let mut importance = importance.map(|q| q.as_chunks::<BLOCK>().0.iter());
    for (x, block) in x
        .as_chunks::<BLOCK>()
        .0
        .iter()
        .zip(row.as_chunks_mut::<BYTES>().0)
    {
        encode(x, importance.as_mut().and_then(Iterator::next), block);
    }
}

/// Pairs the blocks of a weight row with those of its Q8_K activation row.
#[inline(always)]
pub(super) fn block_pairs<'a, const BYTES: usize>(
    w: &'a [u8],
    act: &'a [u8],
) -> impl Iterator<Item = (&'a [u8; BYTES], &'a [u8; q8_k::BYTES])> {
    w.as_chunks::<BYTES>()
        .0
        .iter()
        .zip(act.as_chunks::<{ q8_k::BYTES }>().0)
}

/// `qw * sqrt(sigma2 + x * x)`: the weight of an element, from its column's importance and its size
/// against the block's mean square.
#[inline]
pub(super) fn importance_weights(x: &[f32; BLOCK], qw: &[f32; BLOCK], sigma2: f32) -> [f32; BLOCK] {
    let mut w = [0.0; BLOCK];
    for ((w, x), q) in w.iter_mut().zip(x).zip(qw) {
        *w = q * (sigma2 + x * x).sqrt();
    }
    w
}

/// Sum of squares in element order.
#[inline]
pub(super) fn sum_of_squares(x: &[f32; BLOCK]) -> f32 {
    x.iter().fold(0.0, |sum, v| sum + v * v)
}

/// Codes `0..=top` of `(x + dm) / d`. A NaN element gives the code of its own payload, also where `dm` is
/// NaN (0 times an infinite `dmin`): there the reference's answer changes with the position, because its
/// compiler swaps the operands in the tail of the loop.
#[inline(always)]
pub(super) fn round_affine(x: &[f32], d: f32, dm: f32, top: i32, codes: &mut [u8]) {
    for (l, v) in codes.iter_mut().zip(x) {
        let lifted = if v.is_nan() { *v } else { v + dm };
        *l = nearest_int(lifted / d).min(top).max(0) as u8;
    }
}

/// Codes `0..2 * half` of `x / d`, zero being `half`.
#[inline(always)]
pub(super) fn round_symmetric(x: &[f32], d: f32, half: i32, codes: &mut [u8]) {
    for (l, v) in codes.iter_mut().zip(x) {
        *l = (nearest_int(v / d).min(half - 1).max(-half) + half) as u8;
    }
}

/// Four 2-bit codes to a byte: byte `32 * h + l` holds elements `128 * h + l + {0, 32, 64, 96}`, the
/// first in the low bits. Only the low two bits of a code are taken.
#[inline]
pub(super) fn pack_2bit(codes: &[u8; BLOCK], qs: &mut [u8]) {
    for (half, q) in codes
        .as_chunks::<128>()
        .0
        .iter()
        .zip(qs.as_chunks_mut::<32>().0)
    {
        for l in 0..32 {
            q[l] = (half[l] & 3)
                | (half[l + 32] & 3) << 2
                | (half[l + 64] & 3) << 4
                | half[l + 96] << 6;
        }
    }
}

/// The inverse of [`pack_2bit`].
#[inline]
pub(super) fn unpack_2bit(qs: &[u8]) -> [u8; BLOCK] {
    let mut codes = [0; BLOCK];
    for (half, q) in codes
        .as_chunks_mut::<128>()
        .0
        .iter_mut()
        .zip(qs.as_chunks::<32>().0)
    {
        for l in 0..32 {
            half[l] = q[l] & 3;
            half[l + 32] = (q[l] >> 2) & 3;
            half[l + 64] = (q[l] >> 4) & 3;
            half[l + 96] = q[l] >> 6;
        }
    }
    codes
}

/// `sum(scale * code * q8)` over the elements whose index is `l` modulo 8, for `l = 0..8`; `scales` has
/// one entry for each `BLOCK / scales.len()` elements. Exact: no sum leaves 32 bits.
#[inline]
pub(super) fn lane_sums<const S: usize>(
    codes: &[i8; BLOCK],
    q8: &[u8; BLOCK],
    scales: &[i32; S],
) -> [i32; 8] {
    let mut lanes = [0; 8];
    let group = BLOCK / S;
    for (s, (c, q)) in scales
        .iter()
        .zip(codes.chunks_exact(group).zip(q8.chunks_exact(group)))
    {
        let mut products = [0i32; 8];
        for (c, q) in c.as_chunks::<8>().0.iter().zip(q.as_chunks::<8>().0) {
            for l in 0..8 {
                products[l] += i32::from(c[l]) * i32::from(q[l] as i8);
            }
        }
        for l in 0..8 {
            lanes[l] += s * products[l];
        }
    }
    lanes
}
