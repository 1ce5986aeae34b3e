//! Q4_0: 4-bit codes around zero under one scale.
//!
//! ```text
//! byte  0    1 2                             17
//!       +-----+-------------------------------+
//!       |  d  | low nibble of byte j: weight j |   weight = (code - 8) * d
//!       | f16 | high nibble:     weight j + 16 |
//!       +-----+-------------------------------+
//! ```

use super::grid::{Grid, Levels, scale_first, whole};
use super::lanes::{Portable, Simd};
use super::num::{c_int, f16_at, inverse, put_f16, signed_extreme};
use super::weighted::Row;
use super::{Field, Format, Part, TypeId, TypeInfo, q8_0};

const BLOCK: usize = 32;
const BYTES: usize = 18;
const HALF: usize = BLOCK / 2;
const _: () = assert!(BYTES == size_of::<u16>() + HALF);

/// Q4_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::Q4_0,
    name: "q4_0",
    block: BLOCK,
    bytes: BYTES,
    fields: &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::Bits, 2)],
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
    levels: Levels::Even { lowest: -8, count: 16 },
    steps: scale_first,
    place: |codes, block| pack_codes(whole(codes), &mut block[2..]),
};

/// Packs 4-bit codes into the 16 bytes of nibbles that Q4_0 and Q4_1 end with.
#[inline(always)]
pub(super) fn pack_codes(codes: &[u8; BLOCK], nibbles: &mut [u8]) {
    for (j, q) in nibbles.iter_mut().enumerate() {
        *q = codes[j] | codes[j + HALF] << 4;
    }
}

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, 0);
        let (low, high) = y.split_at_mut(HALF);
        for ((q, lo), hi) in b[2..].iter().zip(low).zip(high) {
            *lo = (i32::from(q & 15) - 8) as f32 * d;
            *hi = (i32::from(q >> 4) - 8) as f32 * d;
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
        let d = signed_extreme(x) / -8.0;
        let id = inverse(d);
        put_f16(b, 0, d);
        // The reference narrows to i8 before it clamps: only infinite products notice, and give 0.
        pack_codes(&x.map(|v| (c_int(v * id + 8.5) as i8).min(15) as u8), &mut b[2..]);
    }
}

/// The scale that loses least, weighted with importance.
#[inline(always)]
fn encode_weighted<S: Simd>(simd: S, x: &[f32], importance: &[f32], row: &mut [u8]) {
    let row = Row::<BYTES> { x, importance, out: row, definition: encode };
    row.encode_symmetric(simd, 8.0, |b, d, codes| {
        put_f16(b, 0, d);
        pack_codes(codes, &mut b[2..]);
    });
}

/// Per block `acc += (isum * dw) * dx`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(q8_0::blocks(x)) {
        let mut isum = 0;
        for (j, q) in w[2..].iter().enumerate() {
            isum += (i32::from(q & 15) - 8) * q8_0::quant(x, j);
            isum += (i32::from(q >> 4) - 8) * q8_0::quant(x, j + HALF);
        }
        acc += isum as f32 * f16_at(w, 0) * q8_0::scale(x);
    }
    acc
}
