//! F16: IEEE half floats.
//!
//! ```text
//! byte  0    1
//!       +----+
//!       | f16|   1 weight, little endian: sign, 5 exponent bits (bias 15), 10 mantissa bits
//!       +----+
//! ```

use super::num::{f16_to_f32, f32_to_f16};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BLOCK: usize = 1;
const BYTES: usize = 2;
const _: () = assert!(BYTES == size_of::<u16>());

/// F16 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::F16,
    name: "f16",
    block: BLOCK,
    bytes: BYTES,
    fields: &[Field::new(Part::Value, Format::F16, 0)],
    head: 0,
    codebook: None,
    act: Some(TypeId::F16),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
};

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out) {
        *y = f16_to_f32(u16::from_le_bytes(*b));
    }
}

fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (v, b) in x.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        *b = f32_to_f16(*v).to_le_bytes();
    }
}

/// Products of the converted values (exact in `f32`), summed in order in double precision.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f64;
    for (a, b) in w.as_chunks::<BYTES>().0.iter().zip(x.as_chunks::<BYTES>().0) {
        let product = f16_to_f32(u16::from_le_bytes(*a)) * f16_to_f32(u16::from_le_bytes(*b));
        acc += f64::from(product);
    }
    acc as f32
}
