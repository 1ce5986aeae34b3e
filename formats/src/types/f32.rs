//! F32: plain IEEE single floats.
//!
//! ```text
//! byte  0        3
//!       +--------+
//!       |  f32   |   1 weight, little endian
//!       +--------+
//! ```

use super::{Field, Format, Part, TypeId, TypeInfo};

const BLOCK: usize = 1;
const BYTES: usize = 4;
const _: () = assert!(BYTES == size_of::<f32>());

/// F32 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::F32,
    name: "f32",
    block: BLOCK,
    bytes: BYTES,
    fields: &[Field::new(Part::Value, Format::F32, 0)],
    head: 0,
    codebook: None,
    act: Some(TypeId::F32),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
};

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out) {
        *y = f32::from_le_bytes(*b);
    }
}

fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (v, b) in x.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        *b = v.to_le_bytes();
    }
}

/// `f32` products, summed in order in double precision.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f64;
    for (a, b) in w.as_chunks::<BYTES>().0.iter().zip(x.as_chunks::<BYTES>().0) {
        acc += f64::from(f32::from_le_bytes(*a) * f32::from_le_bytes(*b));
    }
    acc as f32
}
