//! Q4_1: 4-bit codes with a scale and an offset.
//!
//! ```text
//! byte  0    1 2    3 4                             19
//!       +-----+------+-------------------------------+
//!       |  d  |  m   | low nibble of byte j: weight j |   weight = code * d + m
//!       | f16 | f16  | high nibble:     weight j + 16 |
//!       +-----+------+-------------------------------+
//! ```

use super::block32::{self, BLOCK, Codes, Nibbles};
use super::grid::{Grid, Levels, scale_and_minimum_first, whole};
use super::lanes::{Portable, Simd};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 20;
const _: () = assert!(BYTES == 2 * size_of::<u16>() + BLOCK / 2);

/// Q4_1 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Min, Format::F16, 2),
        Field::new(Part::Codes, Format::Bits, 4),
    ],
    act: Some(TypeId::Q8_1),
    decode: Some(block32::decode_affine::<Nibbles, BYTES>),
    encode: Some(encode),
    dot_ref: Some(block32::dot_affine::<Nibbles, BYTES>),
    ..TypeInfo::sized(TypeId::Q4_1, "q4_1", BLOCK, BYTES)
};

/// Codes under a scale and a minimum that are decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: 0, count: 16 },
    steps: scale_and_minimum_first,
    place: |codes, block| Nibbles::pack(whole(codes), &mut block[4..]),
};

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
///
/// The reference narrows to i8 before it clamps: only infinite products notice, and give 0.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    block32::encode_affine::<S, Nibbles, BYTES>(simd, (x, importance, row), encode, |code| (code as i8).min(15) as u8);
}
