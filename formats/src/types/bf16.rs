//! BF16: the upper half of an IEEE single float.
//!
//! ```text
//! byte  0     1
//!       +-----+
//!       | bf16|   1 weight, little endian: sign, 8 exponent bits (bias 127), 7 mantissa bits
//!       +-----+
//! ```

use super::num::{bf16_to_f32, f32_to_bf16};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BLOCK: usize = 1;
const BYTES: usize = 2;
const _: () = assert!(BYTES == size_of::<u16>());

/// BF16 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::BF16,
    name: "bf16",
    block: BLOCK,
    bytes: BYTES,
    fields: &[Field::new(Part::Value, Format::Bf16, 0)],
    head: 0,
    codebook: None,
    act: Some(TypeId::BF16),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
};

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out) {
        *y = bf16_to_f32(u16::from_le_bytes(*b));
    }
}

fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (v, b) in x.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        *b = f32_to_bf16(*v).to_le_bytes();
    }
}

/// `f32` products of the converted values, summed in order in double precision.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f64;
    for (a, b) in w.as_chunks::<BYTES>().0.iter().zip(x.as_chunks::<BYTES>().0) {
        let product = bf16_to_f32(u16::from_le_bytes(*a)) * bf16_to_f32(u16::from_le_bytes(*b));
        acc += f64::from(product);
    }
    acc as f32
}
