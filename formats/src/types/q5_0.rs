//! Q5_0: 5-bit codes around zero under one scale, the fifth bits kept apart.
//!
//! ```text
//! byte  0    1 2               5 6                             21
//!       +-----+-----------------+-------------------------------+
//!       |  d  | qh: bit j is the | low nibble of byte j: weight j |   weight = (code - 16) * d
//!       | f16 | 5th of weight j  | high nibble:     weight j + 16 |
//!       +-----+-----------------+-------------------------------+
//! ```

use super::grid::{Grid, Levels, scale_first, whole};
use super::lanes::{Portable, Simd};
use super::num::{c_int, f16_at, inverse, put_f16, signed_extreme};
use super::weighted::Row;
use super::{Field, Format, Part, TypeId, TypeInfo, q8_0};

const BLOCK: usize = 32;
const BYTES: usize = 22;
const HALF: usize = BLOCK / 2;
const _: () = assert!(BYTES == size_of::<u16>() + BLOCK / 8 + HALF);

/// Q5_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::Q5_0,
    name: "q5_0",
    block: BLOCK,
    bytes: BYTES,
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::HighBits, Format::Bits, 2),
        Field::new(Part::Codes, Format::Bits, 2 + BLOCK / 8),
    ],
    head: 0,
    codebook: None,
    act: Some(TypeId::Q8_0),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
};

/// Codes under a scale that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: -16, count: 32 },
    steps: scale_first,
    place: |codes, block| pack_codes(whole(codes), &mut block[2..]),
};

/// Splits 5-bit codes into the 20 bytes of fifth bits and nibbles that Q5_0 and Q5_1 end with.
#[inline(always)]
pub(super) fn pack_codes(codes: &[u8; BLOCK], tail: &mut [u8]) {
    let (high_bits, nibbles) = tail.split_at_mut(BLOCK / 8);
    for (bits, codes) in high_bits.iter_mut().zip(codes.as_chunks().0) {
        // The factor has a bit at 56 - 7 j, which takes bit 8 j to 56 + j: eight bytes of 0 or 1 become one of bits.
        let fifths = u64::from_le_bytes(*codes) >> 4 & 0x0101_0101_0101_0101;
        *bits = (fifths.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
    }
    for (j, q) in nibbles.iter_mut().enumerate() {
        *q = (codes[j] & 15) | (codes[j + HALF] & 15) << 4;
    }
}

/// The 32 codes in the 20 bytes of fifth bits and nibbles.
pub(super) fn unpack_codes(tail: &[u8]) -> [i32; BLOCK] {
    let qh = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
    let mut codes = [0; BLOCK];
    for (j, q) in tail[4..4 + HALF].iter().enumerate() {
        codes[j] = i32::from(q & 15) | ((qh >> j & 1) << 4) as i32;
        codes[j + HALF] = i32::from(q >> 4) | ((qh >> (j + HALF) & 1) << 4) as i32;
    }
    codes
}

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, 0);
        for (y, code) in y.iter_mut().zip(unpack_codes(&b[2..])) {
            *y = (code - 16) as f32 * d;
        }
    }
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    match importance {
        None => encode_plain(x, row),
        Some(importance) => encode_weighted(simd, x, importance, row),
    }
}

/// The extreme element becomes code 0, so that its sign has the longer side of the range.
#[inline(always)]
fn encode_plain(x: &[f32], row: &mut [u8]) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let d = signed_extreme(x) / -16.0;
        let id = inverse(d);
        put_f16(b, 0, d);
        // The reference narrows to i8 before it clamps: only infinite products notice, and give 0.
        pack_codes(&x.map(|v| (c_int(v * id + 16.5) as i8).min(31) as u8), &mut b[2..]);
    }
}

/// The scale that loses least, weighted with importance.
#[inline(always)]
fn encode_weighted<S: Simd>(simd: S, x: &[f32], importance: &[f32], row: &mut [u8]) {
    let row = Row::<BYTES> { x, importance, out: row, definition: encode };
    row.encode_symmetric(simd, 16.0, |b, d, codes| {
        put_f16(b, 0, d);
        pack_codes(codes, &mut b[2..]);
    });
}

/// Per block `acc += (dw * dx) * isum`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(q8_0::blocks(x)) {
        let codes = unpack_codes(&w[2..]);
        let isum: i32 = (0..BLOCK).map(|j| (codes[j] - 16) * q8_0::quant(x, j)).sum();
        acc += (f16_at(w, 0) * q8_0::scale(x)) * isum as f32;
    }
    acc
}
