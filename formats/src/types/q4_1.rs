//! Q4_1: 4-bit codes with a scale and an offset.
//!
//! ```text
//! byte  0    1 2    3 4                             19
//!       +-----+------+-------------------------------+
//!       |  d  |  m   | low nibble of byte j: weight j |   weight = code * d + m
//!       | f16 | f16  | high nibble:     weight j + 16 |
//!       +-----+------+-------------------------------+
//! ```

use super::grid::{Grid, Levels, scale_and_minimum_first, whole};
use super::lanes::{Portable, Simd};
use super::num::{c_int, f16_at, inverse, min_max, put_f16};
use super::q4_0::pack_codes;
use super::weighted::Row;
use super::{Field, Format, Part, TypeId, TypeInfo, q8_1};

const BLOCK: usize = 32;
const BYTES: usize = 20;
const HALF: usize = BLOCK / 2;
const _: () = assert!(BYTES == 2 * size_of::<u16>() + HALF);

/// Q4_1 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::Q4_1,
    name: "q4_1",
    block: BLOCK,
    bytes: BYTES,
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Min, Format::F16, 2),
        Field::new(Part::Codes, Format::Bits, 4),
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
    levels: Levels::Even { lowest: 0, count: 16 },
    steps: scale_and_minimum_first,
    place: |codes, block| pack_codes(whole(codes), &mut block[4..]),
};

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let (d, m) = (f16_at(b, 0), f16_at(b, 2));
        let (low, high) = y.split_at_mut(HALF);
        for ((q, lo), hi) in b[4..].iter().zip(low).zip(high) {
            *lo = f32::from(q & 15) * d + m;
            *hi = f32::from(q >> 4) * d + m;
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

/// Spreads the codes evenly between the smallest and the largest element.
#[inline(always)]
fn encode_plain(x: &[f32], row: &mut [u8]) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let (min, max) = min_max(x);
        let d = (max - min) / 15.0;
        let id = inverse(d);
        put_f16(b, 0, d);
        put_f16(b, 2, min);
        // The reference narrows to i8 before it clamps: only infinite products notice, and give 0.
        pack_codes(&x.map(|v| (c_int((v - min) * id + 0.5) as i8).min(15) as u8), &mut b[4..]);
    }
}

/// The scale and offset that lose least, weighted with importance; the offset is never positive.
#[inline(always)]
fn encode_weighted<S: Simd>(simd: S, x: &[f32], importance: &[f32], row: &mut [u8]) {
    let row = Row::<BYTES> { x, importance, out: row, definition: encode };
    row.encode_affine(simd, 15.0, |b, d, min, codes| {
        put_f16(b, 0, d);
        put_f16(b, 2, min);
        pack_codes(codes, &mut b[4..]);
    });
}

/// Per block `acc += (dw * dx) * isum + m * s`, `s` the activation block's scaled sum.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(q8_1::blocks(x)) {
        let mut isum = 0;
        for (j, q) in w[4..].iter().enumerate() {
            isum += i32::from(q & 15) * q8_1::quant(x, j);
            isum += i32::from(q >> 4) * q8_1::quant(x, j + HALF);
        }
        acc += (f16_at(w, 0) * q8_1::scale(x)) * isum as f32 + f16_at(w, 2) * q8_1::sum(x);
    }
    acc
}
