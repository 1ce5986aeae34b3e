//! Q5_1: 5-bit codes with a scale and an offset, the fifth bits kept apart.
//!
//! ```text
//! byte  0    1 2    3 4               7 8                             23
//!       +-----+------+-----------------+-------------------------------+
//!       |  d  |  m   | qh: bit j is the | low nibble of byte j: weight j |   weight = code * d + m
//!       | f16 | f16  | 5th of weight j  | high nibble:     weight j + 16 |
//!       +-----+------+-----------------+-------------------------------+
//! ```

use super::block32::{self, BLOCK, Codes, Fifths};
use super::grid::{Grid, Levels, scale_and_minimum_first, whole};
use super::lanes::{Portable, Simd};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 24;
const _: () = assert!(BYTES == 2 * size_of::<u16>() + BLOCK / 8 + BLOCK / 2);

/// Q5_1 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Min, Format::F16, 2),
        Field::new(Part::HighBits, Format::Bits, 4),
        Field::new(Part::Codes, Format::Bits, 4 + BLOCK / 8),
    ],
    act: Some(TypeId::Q8_1),
    decode: Some(block32::decode_affine::<Fifths, BYTES>),
    encode: Some(encode),
    dot_ref: Some(block32::dot_affine::<Fifths, BYTES>),
    ..TypeInfo::sized(TypeId::Q5_1, "q5_1", BLOCK, BYTES)
};

/// Codes under a scale and a minimum that are decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: 0, count: 32 },
    steps: scale_and_minimum_first,
    place: |codes, block| Fifths::pack(whole(codes), &mut block[4..]),
};

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
///
/// Unlike in Q4_1 nothing clamps without importance: the low five bits of the rounded quotient are kept.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    block32::encode_affine::<S, Fifths, BYTES>(simd, (x, importance, row), encode, |code| code as u8);
}
