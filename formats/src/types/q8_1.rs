//! Q8_1: Q8_0 with the sum of the block beside it; the activation type of weights with an offset.
//!
//! ```text
//! byte  0    1 2     3 4                              35
//!       +-----+-------+--------------------------------+
//!       |  d  |   s   | q0 q1 q2 ...               q31 |   value j = d * qj,  s = d * (q0 + ... + q31)
//!       | f16 |  f16  | 32 x i8                        |
//!       +-----+-------+--------------------------------+
//! ```
//!
//! ggml has neither a decoder nor a dot product with Q8_1 weights: it is only made from activations.

use super::num::{f16_at, put_f16};
use super::{Field, Format, Part, TypeId, TypeInfo, q8_0};

const BLOCK: usize = 32;
const BYTES: usize = 36;
const _: () = assert!(BYTES == 2 * size_of::<u16>() + BLOCK);

/// Q8_1 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Sums, Format::F16, 2),
        Field::new(Part::Codes, Format::I8, 4),
    ],
    encode: Some(encode),
    ..TypeInfo::sized(TypeId::Q8_1, "q8_1", BLOCK, BYTES)
};

/// One Q8_1 block of an activation row.
pub(super) type Block = [u8; BYTES];

/// The blocks of a Q8_1 row.
#[inline]
pub(super) fn blocks(row: &[u8]) -> &[Block] {
    row.as_chunks().0
}

/// Scale of a block.
#[inline]
pub(super) fn scale(block: &Block) -> f32 {
    f16_at(block, 0)
}

/// Scaled sum of a block's quants.
#[inline]
pub(super) fn sum(block: &Block) -> f32 {
    f16_at(block, 2)
}

/// Quant `j` of a block.
#[inline]
pub(super) fn quant(block: &Block, j: usize) -> i32 {
    i32::from(block[4 + j] as i8)
}

fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let mut q = [0; BLOCK];
        let d = q8_0::quantize(x, &mut q);
        let total: i32 = q.iter().map(|&q| i32::from(q as i8)).sum();
        put_f16(b, 0, d);
        // The unrounded scale, not the half float stored beside it.
        put_f16(b, 2, total as f32 * d);
        b[4..].copy_from_slice(&q);
    }
}
