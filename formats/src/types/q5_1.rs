//! Q5_1: 5-bit codes with a scale and an offset, the fifth bits kept apart.
//!
//! ```text
//! byte  0    1 2    3 4               7 8                             23
//!       +-----+------+-----------------+-------------------------------+
//!       |  d  |  m   | qh: bit j is the | low nibble of byte j: weight j |   weight = code * d + m
//!       | f16 | f16  | 5th of weight j  | high nibble:     weight j + 16 |
//!       +-----+------+-----------------+-------------------------------+
//! ```

use super::grid::{Grid, Levels, scale_and_minimum_first, whole};
use super::lanes::{Portable, Simd};
use super::num::{c_int, f16_at, inverse, min_max, put_f16};
use super::q5_0::{pack_codes, unpack_codes};
use super::weighted::Row;
use super::{Field, Format, Part, TypeId, TypeInfo, q8_1};

const BLOCK: usize = 32;
const BYTES: usize = 24;
const _: () = assert!(BYTES == 2 * size_of::<u16>() + BLOCK / 8 + BLOCK / 2);

/// Q5_1 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::Q5_1,
    name: "q5_1",
    block: BLOCK,
    bytes: BYTES,
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Min, Format::F16, 2),
        Field::new(Part::HighBits, Format::Bits, 4),
        Field::new(Part::Codes, Format::Bits, 4 + BLOCK / 8),
    ],
    head: 0,
    codebook: None,
    act: Some(TypeId::Q8_1),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
};

/// Codes under a scale and a minimum that are decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: 0, count: 32 },
    steps: scale_and_minimum_first,
    place: |codes, block| pack_codes(whole(codes), &mut block[4..]),
};

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let (d, m) = (f16_at(b, 0), f16_at(b, 2));
        for (y, code) in y.iter_mut().zip(unpack_codes(&b[4..])) {
            *y = code as f32 * d + m;
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

/// Spreads the codes evenly between the smallest and the largest element. Unlike Q4_1 nothing clamps:
/// the low five bits of the rounded quotient are kept.
#[inline(always)]
fn encode_plain(x: &[f32], row: &mut [u8]) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let (min, max) = min_max(x);
        let d = (max - min) / 31.0;
        let id = inverse(d);
        put_f16(b, 0, d);
        put_f16(b, 2, min);
        pack_codes(&x.map(|v| c_int((v - min) * id + 0.5) as u8), &mut b[4..]);
    }
}

/// The scale and offset that lose least, weighted with importance; the offset is never positive.
#[inline(always)]
fn encode_weighted<S: Simd>(simd: S, x: &[f32], importance: &[f32], row: &mut [u8]) {
    let row = Row::<BYTES> { x, importance, out: row, definition: encode };
    row.encode_affine(simd, 31.0, |b, d, min, codes| {
        put_f16(b, 0, d);
        put_f16(b, 2, min);
        pack_codes(codes, &mut b[4..]);
    });
}

/// Per block `acc += (dw * dx) * isum + m * s`, `s` the activation block's scaled sum.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(q8_1::blocks(x)) {
        let codes = unpack_codes(&w[4..]);
        let isum: i32 = (0..BLOCK).map(|j| codes[j] * q8_1::quant(x, j)).sum();
        acc += (f16_at(w, 0) * q8_1::scale(x)) * isum as f32 + f16_at(w, 2) * q8_1::sum(x);
    }
    acc
}
