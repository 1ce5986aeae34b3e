//! Q2_0: 2-bit codes in element order, groups of 64; PQ2_0: groups of 128.
//!
//! ```text
//! byte  0    1 2                                    17
//!       +-----+--------------------------------------+
//!       |  d  | code of weight j = bits 2 (j mod 4), |   code 0, 1, 2, 3 = -1, 0, +1, +2 times d
//!       | f16 | 2 (j mod 4) + 1 of byte j / 4        |
//!       +-----+--------------------------------------+
//! ```
//!
//! PrismML's fork of llama.cpp has the same with groups of 128 ([`PQ2_0`]).

use super::grid::{Grid, Levels, scale_first};
use super::integers::{Coding, IntegerForm, Sums};
use super::num::{f16_at, inverse, largest_magnitude, put_f16};
use super::{Field, Format, Part, TypeId, TypeInfo, q8_0};

const BLOCK: usize = 64;
const BYTES: usize = 18;
const _: () = assert!(BYTES == size_of::<u16>() + BLOCK / 4);

/// Groups of 128.
const WIDE_BLOCK: usize = 128;
pub(super) const WIDE_BYTES: usize = 34;
const _: () = assert!(WIDE_BYTES == size_of::<u16>() + WIDE_BLOCK / 4);

/// Q2_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::Bits, 2)],
    act: Some(TypeId::Q8_0),
    decode: Some(decode::<BLOCK, BYTES>),
    encode: Some(encode::<BLOCK, BYTES>),
    dot_ref: Some(dot_ref::<BYTES>),
    ..TypeInfo::sized(TypeId::Q2_0, "q2_0", BLOCK, BYTES)
};

/// PQ2_0 of PrismML's fork in the registry: 128 weights in 34 bytes. Its first files have it under the number of Q2_0
/// ([`TypeId::Q2_0_G128`]).
pub const PQ2_0: TypeInfo = TypeInfo {
    id: TypeId::PQ2_0,
    name: "pq2_0",
    block: WIDE_BLOCK,
    bytes: WIDE_BYTES,
    decode: Some(decode::<WIDE_BLOCK, WIDE_BYTES>),
    encode: Some(encode::<WIDE_BLOCK, WIDE_BYTES>),
    dot_ref: Some(dot_ref::<WIDE_BYTES>),
    ..INFO
};

/// Codes under a scale that is decided.
pub(super) const GRID: Grid =
    Grid { group: BLOCK, levels: Levels::Even { lowest: -1, count: 4 }, steps: scale_first, place };

/// The same of PQ2_0.
pub(super) const WIDE_GRID: Grid = Grid { group: WIDE_BLOCK, ..GRID };

/// Writes 2-bit codes in element order behind the scale of a block.
pub(super) fn place(codes: &[u8], block: &mut [u8]) {
    for (byte, code) in block[2..].iter_mut().zip(codes.as_chunks::<4>().0) {
        *byte = code[0] | code[1] << 2 | code[2] << 4 | code[3] << 6;
    }
}

/// The value of code `k` (0..4) of a byte, in units of the scale.
#[inline]
fn level(byte: u8, k: usize) -> i32 {
    i32::from(byte >> (2 * k) & 3) - 1
}

/// Codes in order.
pub(super) const INTEGERS: IntegerForm =
    IntegerForm::new(32, Coding::Even { lowest: -1, count: 4 }, Sums::Nested, |_, block, to| {
        for (to, byte) in to.levels.as_chunks_mut::<4>().0.iter_mut().zip(&block[2..]) {
            *to = std::array::from_fn(|k| level(*byte, k) as i8);
        }
        to.d = [f16_at(block, 0); 4];
    });

fn decode<const BLOCK: usize, const BYTES: usize>(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, 0);
        for (&byte, y) in b[2..].iter().zip(y.as_chunks_mut::<4>().0) {
            for (k, y) in y.iter_mut().enumerate() {
                *y = level(byte, k) as f32 * d;
            }
        }
    }
}

/// The code nearest to `x / d`, ties away from zero; `d` is the largest magnitude, so that code 3 is
/// never written. NaN is passed over for the scale and gets code 0.
fn encode<const BLOCK: usize, const BYTES: usize>(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let d = largest_magnitude(x);
        let id = inverse(d);
        put_f16(b, 0, d);
        if id.is_infinite() {
            // Every product is infinite or NaN. C leaves the conversion undefined; on x86-64 it gives
            // the lowest integer, which is clamped to code 0.
            b[2..].fill(0);
            continue;
        }
        for (byte, x) in b[2..].iter_mut().zip(x.as_chunks::<4>().0) {
            // No product reaches 1.5: rounding is two comparisons, both false for NaN.
            let code = x.map(|v| u8::from(v * id >= 0.5) + u8::from(v * id > -0.5));
            *byte = code[0] | code[1] << 2 | code[2] << 4 | code[3] << 6;
        }
    }
}

/// Per block `t = 0; t += dx * isum` for each of its activation blocks, then `acc += dw * t`.
fn dot_ref<const BYTES: usize>(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    let groups = q8_0::blocks(x).chunks_exact((BYTES - 2) / 8);
    for (w, group) in w.as_chunks::<BYTES>().0.iter().zip(groups) {
        let mut t = 0.0f32;
        for (codes, x) in w[2..].as_chunks::<8>().0.iter().zip(group) {
            let isum: i32 = (0..32).map(|j| level(codes[j / 4], j % 4) * q8_0::quant(x, j)).sum();
            t += q8_0::scale(x) * isum as f32;
        }
        acc += f16_at(w, 0) * t;
    }
    acc
}
