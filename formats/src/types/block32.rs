//! Common parts of the types of 32-weight blocks that hold 4-bit codes, or 5-bit codes with the fifth bits apart,
//! behind a scale and perhaps a minimum: Q4_0, Q4_1, Q5_0 and Q5_1; and of the nibbles that stand for levels in a
//! table: IQ4_NL and MXFP4.

use super::integers::{Coding, IntegerForm, Sums};
use super::lanes::Simd;
use super::num::{c_int, f16_at, inverse, min_max, put_f16, signed_extreme};
use super::weighted::Row;
use super::{EncodeFn, q8_0, q8_1};

/// Weights of a block.
pub(super) const BLOCK: usize = 32;
/// Bytes of the nibbles: byte j has the code of weight j in its low half, that of weight j + 16 in the other.
pub(super) const HALF: usize = BLOCK / 2;

/// How the codes of a block lie in the bytes behind its scale.
pub(super) trait Codes {
    /// The largest code.
    const TOP: i32;
    /// The code of zero, where codes lie around it.
    const ZERO: i32 = (Self::TOP + 1) / 2;

    fn pack(codes: &[u8; BLOCK], tail: &mut [u8]);
    fn unpack(tail: &[u8]) -> [i32; BLOCK];
}

/// 16 bytes of nibbles.
pub(super) struct Nibbles;

impl Codes for Nibbles {
    const TOP: i32 = 15;

    #[inline(always)]
    fn pack(codes: &[u8; BLOCK], nibbles: &mut [u8]) {
        for (j, q) in nibbles.iter_mut().enumerate() {
            *q = codes[j] | codes[j + HALF] << 4;
        }
    }

    #[inline(always)]
    fn unpack(nibbles: &[u8]) -> [i32; BLOCK] {
        let mut codes = [0; BLOCK];
        for (j, q) in nibbles.iter().enumerate() {
            (codes[j], codes[j + HALF]) = (i32::from(q & 15), i32::from(q >> 4));
        }
        codes
    }
}

/// Four bytes of fifth bits, bit j that of weight j, before 16 of nibbles.
pub(super) struct Fifths;

impl Codes for Fifths {
    const TOP: i32 = 31;

    #[inline(always)]
    fn pack(codes: &[u8; BLOCK], tail: &mut [u8]) {
        let (high_bits, nibbles) = tail.split_at_mut(BLOCK / 8);
        for (bits, codes) in high_bits.iter_mut().zip(codes.as_chunks().0) {
            // The factor has a bit at 56 - 7 j, which takes bit 8 j to 56 + j: eight bytes of 0 or 1 become one.
            let fifths = u64::from_le_bytes(*codes) >> 4 & 0x0101_0101_0101_0101;
            *bits = (fifths.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
        }
        for (j, q) in nibbles.iter_mut().enumerate() {
            *q = (codes[j] & 15) | (codes[j + HALF] & 15) << 4;
        }
    }

    #[inline(always)]
    fn unpack(tail: &[u8]) -> [i32; BLOCK] {
        let (high_bits, nibbles) = tail.split_at(BLOCK / 8);
        let mut codes = Nibbles::unpack(nibbles);
        for (codes, bits) in codes.as_chunks_mut::<8>().0.iter_mut().zip(high_bits) {
            for (k, code) in codes.iter_mut().enumerate() {
                *code |= i32::from(bits >> k & 1) << 4;
            }
        }
        codes
    }
}

/// Decodes `(code - zero) * d`.
pub(super) fn decode_symmetric<C: Codes, const BYTES: usize>(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, 0);
        *y = C::unpack(&b[2..]).map(|code| (code - C::ZERO) as f32 * d);
    }
}

/// Decodes `code * d + m`.
pub(super) fn decode_affine<C: Codes, const BYTES: usize>(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let (d, m) = (f16_at(b, 0), f16_at(b, 2));
        *y = C::unpack(&b[4..]).map(|code| code as f32 * d + m);
    }
}

/// Encodes codes around zero under one scale; `definition` is the type's encoder, for rows that do not suit the
/// instruction set. Without importance the extreme element becomes code 0, so that its sign has the longer side of the
/// range; with it the scale is the one that loses least.
#[inline(always)]
pub(super) fn encode_symmetric<S: Simd, C: Codes, const BYTES: usize>(
    simd: S,
    (x, importance, out): (&[f32], Option<&[f32]>, &mut [u8]),
    definition: EncodeFn,
) {
    let half = C::ZERO as f32;
    if let Some(importance) = importance {
        let row = Row::<BYTES> { x, importance, out, definition };
        return row.encode_symmetric(simd, half, |b, d, codes| {
            put_f16(b, 0, d);
            C::pack(codes, &mut b[2..]);
        });
    }
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
        let d = signed_extreme(x) / -half;
        let id = inverse(d);
        put_f16(b, 0, d);
        // The reference narrows to i8 before it clamps: only infinite products notice, and give 0.
        C::pack(&x.map(|v| (c_int(v * id + (half + 0.5)) as i8).min(C::TOP as i8) as u8), &mut b[2..]);
    }
}

/// Encodes codes under a scale and a minimum, as [`encode_symmetric`]. Without importance codes are spread evenly
/// between the smallest and the largest element, and `code` makes one of the truncated quotient; with it scale and
/// minimum are those that lose least, and the minimum is never positive.
#[inline(always)]
pub(super) fn encode_affine<S: Simd, C: Codes, const BYTES: usize>(
    simd: S,
    (x, importance, out): (&[f32], Option<&[f32]>, &mut [u8]),
    definition: EncodeFn,
    code: impl Fn(i32) -> u8,
) {
    let top = C::TOP as f32;
    if let Some(importance) = importance {
        let row = Row::<BYTES> { x, importance, out, definition };
        return row.encode_affine(simd, top, |b, d, min, codes| {
            put_f16(b, 0, d);
            put_f16(b, 2, min);
            C::pack(codes, &mut b[4..]);
        });
    }
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
        let (min, max) = min_max(x);
        let d = (max - min) / top;
        let id = inverse(d);
        put_f16(b, 0, d);
        put_f16(b, 2, min);
        C::pack(&x.map(|v| code(c_int((v - min) * id + 0.5))), &mut b[4..]);
    }
}

/// Q4_1 as integers.
pub(super) const Q4_1: IntegerForm = affine::<Nibbles>();
/// Q5_1 as integers.
pub(super) const Q5_1: IntegerForm = affine::<Fifths>();
/// Q5_0 as integers.
pub(super) const Q5_0: IntegerForm =
    IntegerForm::new(BLOCK, Coding::Even { lowest: -16, count: 32 }, Sums::Blocks, |_, block, to| {
        to.set(&Fifths::unpack(&block[2..]).map(|code| code - Fifths::ZERO), f16_at(block, 0));
    });

const fn affine<C: Codes>() -> IntegerForm {
    let coding = Coding::Even { lowest: 0, count: C::TOP as u8 + 1 };
    IntegerForm::new(BLOCK, coding, Sums::Shifted, |_, block, to| {
        to.set(&C::unpack(&block[4..]), f16_at(block, 0));
        to.minimum = f16_at(block, 2);
    })
}

/// Per block `acc += block_step(isum, dw, dx)`: `isum` is the sum of the products of codes around zero and quants.
pub(super) fn dot_symmetric<C: Codes, const BYTES: usize>(
    w: &[u8],
    x: &[u8],
    block_step: impl Fn(f32, f32, f32) -> f32,
) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(q8_0::blocks(x)) {
        let codes = C::unpack(&w[2..]);
        let isum: i32 = (0..BLOCK).map(|j| (codes[j] - C::ZERO) * q8_0::quant(x, j)).sum();
        acc += block_step(isum as f32, f16_at(w, 0), q8_0::scale(x));
    }
    acc
}

/// Per block `acc += (dw * dx) * isum + m * s`, `s` the activation block's scaled sum.
pub(super) fn dot_affine<C: Codes, const BYTES: usize>(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(q8_1::blocks(x)) {
        let codes = C::unpack(&w[4..]);
        let isum: i32 = (0..BLOCK).map(|j| codes[j] * q8_1::quant(x, j)).sum();
        acc += (f16_at(w, 0) * q8_1::scale(x)) * isum as f32 + f16_at(w, 2) * q8_1::sum(x);
    }
    acc
}

/// The levels of a block of nibbles.
#[inline(always)]
pub(super) fn levels(nibbles: &[u8], table: &[i8; 16]) -> [i8; BLOCK] {
    Nibbles::unpack(nibbles).map(|code| table[code as usize & 15])
}

/// Writes a code for each element of a block.
#[inline(always)]
pub(super) fn put_codes(x: &[f32; BLOCK], nibbles: &mut [u8], code: impl Fn(f32) -> u8) {
    Nibbles::pack(&x.map(code), nibbles);
}

/// Per block `acc += (dx * dw) * isum`, `isum` of levels and quants; nibbles are the bytes behind the scale, which
/// `scale` reads.
pub(super) fn dot_levels<const BYTES: usize>(
    w: &[u8],
    x: &[u8],
    table: &[i8; 16],
    scale: impl Fn(&[u8; BYTES]) -> f32,
) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(q8_0::blocks(x)) {
        let levels = levels(&w[BYTES - HALF..], table);
        let isum: i32 = (0..BLOCK).map(|j| i32::from(levels[j]) * q8_0::quant(x, j)).sum();
        acc += (q8_0::scale(x) * scale(w)) * isum as f32;
    }
    acc
}
