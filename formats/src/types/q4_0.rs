//! Q4_0: 4-bit codes around zero under one scale.
//!
//! ```text
//! byte  0    1 2                             17
//!       +-----+-------------------------------+
//!       |  d  | low nibble of byte j: weight j |   weight = (code - 8) * d
//!       | f16 | high nibble:     weight j + 16 |
//!       +-----+-------------------------------+
//! ```

use super::block32::{self, BLOCK, Codes, Nibbles};
use super::grid::{Grid, Levels, scale_first, whole};
use super::lanes::{Portable, Simd};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 18;
const _: () = assert!(BYTES == size_of::<u16>() + BLOCK / 2);

/// Q4_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::Bits, 2)],
    act: Some(TypeId::Q8_0),
    decode: Some(block32::decode_symmetric::<Nibbles, BYTES>),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q4_0, "q4_0", BLOCK, BYTES)
};

/// Codes under a scale that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: -8, count: 16 },
    steps: scale_first,
    place: |codes, block| Nibbles::pack(whole(codes), &mut block[2..]),
};

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    block32::encode_symmetric::<S, Nibbles, BYTES>(simd, (x, importance, row), encode);
}

/// Per block `acc += (isum * dw) * dx`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    block32::dot_symmetric::<Nibbles, BYTES>(w, x, |isum, dw, dx| isum * dw * dx)
}
