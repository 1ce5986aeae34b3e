//! BF16: the upper half of an IEEE single float.
//!
//! ```text
//! byte  0     1
//!       +-----+
//!       | bf16|   1 weight, little endian: sign, 8 exponent bits (bias 127), 7 mantissa bits
//!       +-----+
//! ```

use super::{TypeId, TypeInfo};

const BLOCK: usize = 1;
const BYTES: usize = 2;
const _: () = assert!(BYTES == size_of::<u16>());

/// BF16 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::BF16,
    name: "bf16",
    block: BLOCK,
    bytes: BYTES,
    act: Some(TypeId::BF16),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
};

/// Value of a bfloat: its bits are the upper bits of the `f32`, signalling NaNs included.
#[inline]
pub fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// Nearest bfloat, ties to even; NaN keeps its sign and upper payload and becomes quiet.
#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let upper = (bits >> 16) as u16;
    if bits & 0x7FFF_FFFF > 0x7F80_0000 {
        return upper | 0x0040;
    }
    // No number's bits are near enough to the top for the carry to leave 32 bits.
    (bits.wrapping_add(0x7FFF + u32::from(upper & 1)) >> 16) as u16
}

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
    for (a, b) in w
        .as_chunks::<BYTES>()
        .0
        .iter()
        .zip(x.as_chunks::<BYTES>().0)
    {
        let product = bf16_to_f32(u16::from_le_bytes(*a)) * bf16_to_f32(u16::from_le_bytes(*b));
        acc += f64::from(product);
    }
    acc as f32
}
