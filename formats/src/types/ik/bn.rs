//! IQ1_BN and IQ2_BN of ik_llama.cpp: ternary weights with one scale for a row, which stands before its blocks.
//!
//! ```text
//! IQ1_BN   byte 0  1          2          13  14   15
//!               +-----+       +------------+-------+
//!          row: |  d  | block:| 12 bytes,  | extra |    byte k: weights 16 (k / 3) + 5 (k mod 3) .. + 5
//!               | f16 |       | 5 trits    | 4     |    extra:  weights 15, 31, 47, 63
//!               +-----+       +------------+-------+
//!
//! IQ2_BN   byte 0  3          4               19
//!               +-----+       +------------------+
//!          row: |  d  | block:| 16 bytes, byte m:|     bits    7 6     5 4     3 2    1 0
//!               | f32 |       | four codes       |           m + 48  m + 32  m + 16    m
//!               +-----+       +------------------+
//!
//! digit or code 0, 1, 2 = -1, 0, +1 times d; code 3 of IQ2_BN is never written and stands for +2
//! ```
//!
//! Both have blocks of 64. Five trits of a byte are packed as in [`super::super::tq1_0`], but for their order: the first
//! weight has the least digit of the number. Files from before October 2024 have blocks alone, and their scale in
//! another place: their size tells, and they are not read. Source: `IQ1BNQuantizer`, `repack_iq2_bn` and
//! `dequantize_row_iq2_bn_r4` of ik_llama.cpp's `iqk_quantize.cpp`. Decoders and products are those of [`super`].

use super::super::k_block::BLOCK as WIDEST;
use super::super::num::put_f16;

const BLOCK: usize = 64;

/// Bytes of five trits in a block of IQ1_BN; the last byte holds four.
const FIVES: usize = 12;
/// Bytes of IQ2_BN's blocks, and the distance of weights that share one.
const PLANE: usize = 16;
const _: () = assert!(FIVES * 5 + 4 == BLOCK && PLANE * 4 == BLOCK);

/// Factors that move digit `t` of a byte to its upper end.
const TO_THE_TOP: [u8; 5] = [81, 27, 9, 3, 1];

/// Digit `t` of a byte, the least first. Defined for all 256 bytes, although only 243 are ever written.
#[inline]
fn digit(byte: u8, t: usize) -> u8 {
    ((u16::from(byte.wrapping_mul(TO_THE_TOP[t])) * 3) >> 8) as u8
}

/// Packs up to five digits, the least first.
#[inline]
fn pack(digits: impl DoubleEndedIterator<Item = u8>) -> u8 {
    let number = digits.rev().fold(0, |n, d| n * 3 + u32::from(d));
    // 242 of 243 become 255 of 256
    (number * 256).div_ceil(243) as u8
}

/// Where the five trits of byte `k` of a block begin.
#[inline]
fn first_of(k: usize) -> usize {
    16 * (k / 3) + 5 * (k % 3)
}

/// Writes the levels of a block of IQ1_BN.
pub(super) fn iq1_bn(block: &[u8], out: &mut [i8; WIDEST]) {
    for (k, &byte) in block[..FIVES].iter().enumerate() {
        (0..5).for_each(|t| out[first_of(k) + t] = digit(byte, t) as i8 - 1);
    }
    (0..4).for_each(|t| out[15 + 16 * t] = digit(block[FIVES], t) as i8 - 1);
}

/// Writes the levels of a block of IQ2_BN.
pub(super) fn iq2_bn(block: &[u8], out: &mut [i8; WIDEST]) {
    for (j, y) in out[..BLOCK].iter_mut().enumerate() {
        *y = (block[j % PLANE] >> (2 * (j / PLANE)) & 3) as i8 - 1;
    }
}

/// The largest magnitude of a row; NaN is passed over.
fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |m, v| if m < v.abs() { v.abs() } else { m })
}

/// The code of a weight: 1 below half of the largest magnitude, otherwise 0 or 2 by its sign. Not a number, and any in
/// a row of zeros, is 2.
fn code(v: f32, half: f32) -> u8 {
    match v {
        _ if v.abs() < half => 1,
        _ if v < 0.0 => 0,
        _ => 2,
    }
}

pub(super) fn encode_1(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    let Some((header, blocks)) = row.split_first_chunk_mut::<2>() else {
        return;
    };
    let d = largest(x);
    put_f16(header, 0, d);
    let of = |v: &f32| code(*v, 0.5 * d);
    let blocks = blocks.as_chunks_mut::<{ FIVES + 1 }>().0;
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        for (k, byte) in b[..FIVES].iter_mut().enumerate() {
            *byte = pack(x[first_of(k)..][..5].iter().map(of));
        }
        b[FIVES] = pack([15, 31, 47, 63].iter().map(|&i| of(&x[i])));
    }
}

pub(super) fn encode_2(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    let Some((header, blocks)) = row.split_first_chunk_mut::<4>() else {
        return;
    };
    let d = largest(x);
    *header = d.to_le_bytes();
    let blocks = blocks.as_chunks_mut::<PLANE>().0;
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        for (m, byte) in b.iter_mut().enumerate() {
            let codes = (0..4).map(|n| code(x[m + PLANE * n], 0.5 * d) << (2 * n));
            *byte = codes.fold(0, |all, c| all | c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{TypeId, TypeInfo};
    use super::*;

    fn one() -> &'static TypeInfo {
        TypeId::IQ1_BN.info().unwrap()
    }

    fn two() -> &'static TypeInfo {
        TypeId::IQ2_BN.info().unwrap()
    }

    /// A row of ternary weights, of which no two blocks are alike.
    fn ternary(n: usize, scale: f32) -> Vec<f32> {
        let code = |i: usize| ((i * i + i / 7 + i / 64) % 3) as f32 - 1.0;
        (0..n).map(|i| code(i) * scale).collect()
    }

    fn encoded(info: &TypeInfo, x: &[f32]) -> Vec<u8> {
        let mut row = vec![0; info.row_bytes(x.len() as u64).unwrap() as usize];
        info.encode.unwrap()(x, None, &mut row);
        row
    }

    fn decoded(info: &TypeInfo, row: &[u8], n: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; n];
        info.decode.unwrap()(row, &mut out);
        out
    }

    #[test]
    fn ternary_rows_come_back() {
        for (info, scale) in [(one(), 0.75), (two(), 0.1)] {
            for n in [64, 320] {
                let x = ternary(n, scale);
                assert_eq!(decoded(info, &encoded(info, &x), n), x, "{}", info.name);
            }
        }
    }

    #[test]
    fn rows_are_a_scale_and_blocks() {
        assert_eq!(one().row_bytes(128), Some(2 + 2 * 13));
        assert_eq!(two().row_bytes(128), Some(4 + 2 * 16));
        assert_eq!(two().tensor_bytes(128, 3), Some(3 * 36));
        assert_eq!(one().row_bytes(96), None);
        // the trits of weights 0..5 and 5..10, and those of 15, 31, 47, 63
        let mut x = vec![0.0; 64];
        (x[0], x[4], x[5], x[31], x[63]) = (2.0, -2.0, 2.0, 2.0, -2.0);
        let row = encoded(one(), &x);
        assert_eq!(row[..2], [0x00, 0x40]);
        // numbers in base 3: 2 + 3 + 9 + 27 is 41 of 243, 44 of 256; likewise 122, 121 and, of four digits, 1 + 6 + 9
        assert_eq!(row[2..5], [44, 129, 128]);
        assert_eq!(row[14], 17);
        let row = encoded(two(), &x);
        assert_eq!(row[..4], 2f32.to_le_bytes());
        assert_eq!((row[4], row[8], row[19]), (0x56, 0x54, 0x19));
    }

    #[test]
    fn every_byte_decodes_to_ternary_and_codes_of_ones_own_to_themselves() {
        for byte in 0..=255u8 {
            assert!((0..5).all(|t| digit(byte, t) <= 2), "{byte}");
        }
        for number in 0..243u32 {
            let digits = |t: u32| (number / 3u32.pow(t) % 3) as u8;
            let byte = pack((0..5).map(digits));
            assert!((0..5).all(|t| digit(byte, t as usize) == digits(t)), "{number}");
        }
    }

    #[test]
    fn what_is_not_ternary_has_the_references_codes() {
        let mut x = vec![0.49; 64];
        (x[0], x[1], x[2], x[3]) = (-1.0, 0.5, f32::NAN, -0.5);
        let got = decoded(two(), &encoded(two(), &x), 64);
        assert_eq!(got[..5], [-1.0, 1.0, 1.0, -1.0, 0.0]);
        let zeros = encoded(one(), &[0.0; 64]);
        assert_eq!(zeros, [[0; 2].as_slice(), &[255; 12], &[85]].concat());
        assert!(decoded(one(), &zeros, 64).iter().all(|&v| v == 0.0));
    }
}
