//! Q5_0: 5-bit codes around zero under one scale, the fifth bits kept apart.
//!
//! ```text
//! byte  0    1 2               5 6                             21
//!       +-----+-----------------+-------------------------------+
//!       |  d  | qh: bit j is the | low nibble of byte j: weight j |   weight = (code - 16) * d
//!       | f16 | 5th of weight j  | high nibble:     weight j + 16 |
//!       +-----+-----------------+-------------------------------+
//! ```

use super::block32::{self, BLOCK, Codes, Fifths};
use super::grid::{Grid, Levels, scale_first, whole};
use super::lanes::{Portable, Simd};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 22;
const _: () = assert!(BYTES == size_of::<u16>() + BLOCK / 8 + BLOCK / 2);

/// Q5_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::HighBits, Format::Bits, 2),
        Field::new(Part::Codes, Format::Bits, 2 + BLOCK / 8),
    ],
    act: Some(TypeId::Q8_0),
    decode: Some(block32::decode_symmetric::<Fifths, BYTES>),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q5_0, "q5_0", BLOCK, BYTES)
};

/// Codes under a scale that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: -16, count: 32 },
    steps: scale_first,
    place: |codes, block| Fifths::pack(whole(codes), &mut block[2..]),
};

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    block32::encode_symmetric::<S, Fifths, BYTES>(simd, (x, importance, row), encode);
}

/// Per block `acc += (dw * dx) * isum`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    block32::dot_symmetric::<Fifths, BYTES>(w, x, |isum, dw, dx| (dw * dx) * isum)
}
