//! Q8_K: the 8-bit activations that all 256-wide weight types are multiplied with.
//!
//! ```text
//! byte   0        4                                        260              292
//!        | d: f32 | qs: 256 x i8, element e = byte 4 + e   | bsums: 16 x i16 |
//! x[e] = d * qs[e]         bsums[j] = qs[16 j] + .. + qs[16 j + 15]
//! ```
//!
//! The element of largest magnitude becomes -127, so `d` has the opposite sign of it.

use super::k_block::{self, BLOCK};
use super::num::{nearest_int, signed_extreme};
use super::{Field, Format, Part, TypeId, TypeInfo};

/// Bytes of a block.
pub(super) const BYTES: usize = 292;
const QS: usize = 4;
const BSUMS: usize = QS + BLOCK;
const _: () = assert!(BSUMS + 2 * (BLOCK / 16) == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F32, 0),
        Field::new(Part::Codes, Format::I8, QS),
        Field::new(Part::Sums, Format::I16, BSUMS),
    ],
    decode: Some(decode),
    encode: Some(encode),
    ..TypeInfo::sized(TypeId::Q8_K, "q8_K", BLOCK, BYTES)
};

/// The block's scale.
#[inline]
pub(super) fn scale(block: &[u8; BYTES]) -> f32 {
    f32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

/// The block's quants, as the bytes of `i8`.
#[inline]
pub(super) fn quants(block: &[u8; BYTES]) -> &[u8; BLOCK] {
    &block[QS..].as_chunks::<BLOCK>().0[0]
}

/// Stored sum of the 16 quants from element `16 * j`.
#[inline]
pub(super) fn bsum(block: &[u8; BYTES], j: usize) -> i32 {
    i32::from(i16::from_le_bytes([block[BSUMS + 2 * j], block[BSUMS + 2 * j + 1]]))
}

/// Pairs the blocks of `W` bytes of a weight row with those of its Q8_K activation row.
#[inline(always)]
pub(super) fn block_pairs<'a, const W: usize>(
    w: &'a [u8],
    act: &'a [u8],
) -> impl Iterator<Item = (&'a [u8; W], &'a [u8; BYTES])> {
    w.as_chunks::<W>().0.iter().zip(act.as_chunks::<BYTES>().0)
}

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let d = scale(block);
        for (y, q) in y.iter_mut().zip(quants(block)) {
            *y = d * f32::from(*q as i8);
        }
    });
}

fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    let blocks = row.as_chunks_mut::<BYTES>().0.iter_mut();
    for (block, x) in blocks.zip(x.as_chunks::<BLOCK>().0) {
        let extreme = signed_extreme(x);
        if extreme == 0.0 {
            // ggml leaves the sums as it found them; here they are the sums.
            block.fill(0);
            continue;
        }
        let inverse = -127.0 / extreme;
        for (q, v) in block[QS..BSUMS].iter_mut().zip(x) {
            *q = nearest_int(inverse * v).min(127) as u8;
        }
        for j in 0..BLOCK / 16 {
            let sum: i32 = block[QS + 16 * j..QS + 16 * j + 16].iter().map(|q| i32::from(*q as i8)).sum();
            block[BSUMS + 2 * j..BSUMS + 2 * j + 2].copy_from_slice(&(sum as i16).to_le_bytes());
        }
        block[..QS].copy_from_slice(&(1.0 / inverse).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(x: &[f32; BLOCK]) -> [u8; BYTES] {
        let mut block = [0xAA; BYTES];
        encode(x, None, &mut block);
        block
    }

    #[test]
    fn the_first_extreme_becomes_minus_127() {
        let mut x = [0.0; BLOCK];
        (x[3], x[40], x[41], x[42]) = (-2.54, 2.54, 0.01, 1.27);
        let block = encoded(&x);
        let q = |e: usize| quants(&block)[e] as i8;
        // 63.5 ties to the even 64; the opposite extreme is 127.
        assert_eq!((q(3), q(40), q(42)), (-127, 127, 64));
        assert_eq!(scale(&block), 1.0 / (-127.0f32 / -2.54));
        let sums: Vec<i32> = (0..16).map(|j| bsum(&block, j)).collect();
        assert_eq!(sums[..4], [-127, 0, 127 + i32::from(q(41)) + 64, 0]);
    }

    #[test]
    fn nan_infinity_and_zero_blocks() {
        assert_eq!(encoded(&[0.0; BLOCK]), [0; BYTES]);
        assert_eq!(encoded(&[f32::NAN; BLOCK]), [0; BYTES]);
        let mut x = [1.0; BLOCK];
        x[9] = f32::NAN;
        assert_eq!(quants(&encoded(&x))[8..11], [-127i8 as u8, 0, -127i8 as u8]);
        x[9] = f32::INFINITY;
        let block = encoded(&x);
        assert_eq!((scale(&block), *quants(&block)), (f32::NEG_INFINITY, [0; BLOCK]));
    }
}
