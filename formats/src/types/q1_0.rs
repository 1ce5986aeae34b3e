//! Q1_0: one sign bit per weight.
//!
//! ```text
//! byte  0    1 2                             17
//!       +-----+-------------------------------+
//!       |  d  | sign of weight j = bit j mod 8 |   1 = +d, 0 = -d
//!       | f16 | of byte j / 8                  |
//!       +-----+-------------------------------+
//! ```

use super::grid::{Grid, Levels, scale_first};
use super::integers::{Coding, IntegerForm, Sums};
use super::num::{f16_at, put_f16};
use super::{Field, Format, Part, TypeId, TypeInfo, q8_0};

const BLOCK: usize = 128;
const BYTES: usize = 18;
const _: () = assert!(BYTES == size_of::<u16>() + BLOCK / 8);

/// Q1_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::Bits, 2)],
    act: Some(TypeId::Q8_0),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q1_0, "q1_0", BLOCK, BYTES)
};

/// Signs under a scale that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Table(&[-1, 1]),
    steps: scale_first,
    place: |codes, block| {
        for (bits, codes) in block[2..].iter_mut().zip(codes.as_chunks::<8>().0) {
            *bits = codes.iter().rev().fold(0, |bits, code| bits << 1 | code);
        }
    },
};

/// Signs.
pub(super) const INTEGERS: IntegerForm = IntegerForm::new(32, Coding::Table(&[-1, 1]), Sums::Nested, |_, block, to| {
    to.set(&std::array::from_fn::<i8, BLOCK, _>(|j| 2 * (block[2 + j / 8] >> (j % 8) & 1) as i8 - 1), f16_at(block, 0));
});

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, 0);
        for (bits, y) in b[2..].iter().zip(y.as_chunks_mut::<8>().0) {
            for (k, y) in y.iter_mut().enumerate() {
                *y = if bits >> k & 1 == 1 { d } else { -d };
            }
        }
    }
}

/// The scale is the mean magnitude, summed in order; zeros of either sign count as positive, NaN as
/// negative.
fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let mut sum = 0.0f32;
        for v in x {
            sum += v.abs();
        }
        put_f16(b, 0, sum / BLOCK as f32);
        for (bits, x) in b[2..].iter_mut().zip(x.as_chunks::<8>().0) {
            *bits = x.iter().enumerate().fold(0, |bits, (k, &v)| bits | u8::from(v >= 0.0) << k);
        }
    }
}

/// Per block `t = 0; t += dx * isum` for each of its four activation blocks, then `acc += dw * t`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    let groups = q8_0::blocks(x).as_chunks::<4>().0;
    for (w, group) in w.as_chunks::<BYTES>().0.iter().zip(groups) {
        let mut t = 0.0f32;
        for (bits, x) in w[2..].as_chunks::<4>().0.iter().zip(group) {
            let bits = u32::from_le_bytes(*bits);
            let signed = |j: usize| {
                if bits >> j & 1 == 1 { q8_0::quant(x, j) } else { -q8_0::quant(x, j) }
            };
            let isum: i32 = (0..32).map(signed).sum();
            t += q8_0::scale(x) * isum as f32;
        }
        acc += f16_at(w, 0) * t;
    }
    acc
}
