//! Common parts of Q3_K and Q6_K: signed codes in groups of 16, each with a signed scale, under the scale of the block.

use super::integers::{Coding, IntegerForm, Integers, Sums};
use super::k_block::{BLOCK, decode_blocks, lane_sums};
use super::q8_k;

/// Weights of a group of Q3_K and Q6_K.
const SIXTEEN: usize = 16;

/// A block of Q3_K or Q6_K taken apart: its scale, the signed scale of each 16 weights, and the signed codes.
pub(super) type Symmetric = (f32, [i32; BLOCK / SIXTEEN], [i8; BLOCK]);

/// Decodes a row of such blocks: `(d * scale) * code`.
#[inline(always)]
pub(super) fn decode<const BYTES: usize>(row: &[u8], out: &mut [f32], unpack: impl Fn(&[u8; BYTES]) -> Symmetric) {
    decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let (d, scales, codes) = unpack(block);
        let groups = y.as_chunks_mut::<SIXTEEN>().0.iter_mut().zip(codes.as_chunks::<SIXTEEN>().0);
        for ((y, codes), scale) in groups.zip(scales) {
            let dl = d * scale as f32;
            for (y, c) in y.iter_mut().zip(codes) {
                *y = dl * f32::from(*c);
            }
        }
    });
}

/// The product of a row of such blocks with Q8_K activations: eight lanes, added up in order at the end.
#[inline(always)]
pub(super) fn dot<const BYTES: usize>(w: &[u8], act: &[u8], unpack: impl Fn(&[u8; BYTES]) -> Symmetric) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (x, y) in q8_k::block_pairs::<BYTES>(w, act) {
        let (d, scales, codes) = unpack(x);
        let d = d * q8_k::scale(y);
        for (lane, sum) in lanes.iter_mut().zip(lane_sums(&codes, q8_k::quants(y), &scales)) {
            *lane += d * sum as f32;
        }
    }
    lanes.iter().fold(0.0, |sum, lane| sum + lane)
}

/// A type as integers, with this lowest of so many codes.
pub(super) const fn integers(lowest: i8, count: u8, read: fn(f32, &[u8], &mut Integers)) -> IntegerForm {
    IntegerForm::new(SIXTEEN, Coding::Even { lowest, count }, Sums::Chains, read)
}

/// The parts of a block as integers.
pub(super) fn take_apart((d, scales, codes): Symmetric, to: &mut Integers) {
    to.set(&codes, d);
    to.set_scales(&scales);
}
