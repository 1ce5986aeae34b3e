//! Q8_0: 8-bit integers under one scale; the usual activation type of the 32-weight blocks.
//!
//! ```text
//! byte  0    1 2                              33
//!       +-----+--------------------------------+
//!       |  d  | q0 q1 q2 ...               q31 |   weight j = d * qj
//!       | f16 | 32 x i8                        |
//!       +-----+--------------------------------+
//! ```

use super::grid::{Grid, Levels, scale_first, whole};
use super::integers::{Coding, IntegerForm, Sums};
use super::num::{amax, c_int, f16_at, inverse, put_f16, round_half_away, round_small};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BLOCK: usize = 32;
const BYTES: usize = 34;
const _: () = assert!(BYTES == size_of::<u16>() + BLOCK);

/// Q8_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::I8, 2)],
    act: Some(TypeId::Q8_0),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q8_0, "q8_0", BLOCK, BYTES)
};

/// The level of the lowest code that encoders write: -128 has no counterpart.
const LOWEST: i16 = -127;

/// Codes under a scale that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: LOWEST, count: 255 },
    steps: scale_first,
    place: |codes, block| {
        let quants = whole::<BLOCK>(codes).map(|code| (i16::from(code) + LOWEST) as i8 as u8);
        block[2..].copy_from_slice(&quants);
    },
};

/// One Q8_0 block of an activation row.
pub(super) type Block = [u8; BYTES];

/// The blocks of a Q8_0 row.
#[inline]
pub(super) fn blocks(row: &[u8]) -> &[Block] {
    row.as_chunks().0
}

/// Scale of a block.
#[inline]
pub(super) fn scale(block: &Block) -> f32 {
    f16_at(block, 0)
}

/// Quant `j` of a block.
#[inline]
pub(super) fn quant(block: &Block, j: usize) -> i32 {
    i32::from(block[2 + j] as i8)
}

/// Bytes.
pub(super) const INTEGERS: IntegerForm = IntegerForm::new(BLOCK, Coding::Bytes, Sums::Blocks, |_, block, to| {
    to.set(&std::array::from_fn::<_, BLOCK, _>(|j| block[2 + j] as i8), f16_at(block, 0));
});

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in blocks(row).iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = scale(b);
        for (y, &q) in y.iter_mut().zip(&b[2..]) {
            *y = f32::from(q as i8) * d;
        }
    }
}

/// Rounds the block to 8 bits, ties away from zero, and returns the unrounded scale `amax / 127`.
/// The quants are made with the inverse of that scale, not of the one a file keeps.
pub(super) fn quantize(x: &[f32; BLOCK], q: &mut [u8; BLOCK]) -> f32 {
    let (amax, is_max) = amax(x);
    let d = amax / 127.0;
    let id = inverse(d);
    if is_max && id.is_finite() {
        for (q, &v) in q.iter_mut().zip(x) {
            *q = round_small(v * id) as u8;
        }
    } else {
        // Products may be of any size here; the narrowing to 8 bits wraps.
        for (q, &v) in q.iter_mut().zip(x) {
            *q = c_int(round_half_away(v * id)) as u8;
        }
    }
    d
}

fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let mut q = [0; BLOCK];
        let d = quantize(x, &mut q);
        put_f16(b, 0, d);
        b[2..].copy_from_slice(&q);
    }
}

/// Per block `acc += isum * (dw * dx)`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in blocks(w).iter().zip(blocks(x)) {
        let isum: i32 = (0..BLOCK).map(|j| quant(w, j) * quant(x, j)).sum();
        acc += isum as f32 * (scale(w) * scale(x));
    }
    acc
}
