//! Common parts of the types that are plain numbers: F32, F16 and BF16.

use super::{Field, Format, Part, TypeId, TypeInfo};

/// A number of `BYTES` bytes.
pub(super) trait Number<const BYTES: usize> {
    /// Its value.
    fn read(bytes: [u8; BYTES]) -> f32;

    /// The number nearest to a value.
    fn write(value: f32) -> [u8; BYTES];
}

/// The registry's entry of a type.
pub(super) const fn info<T: Number<BYTES>, const BYTES: usize>(
    id: TypeId,
    name: &'static str,
    fields: &'static [Field; 1],
) -> TypeInfo {
    TypeInfo {
        fields,
        act: Some(id),
        decode: Some(decode::<T, BYTES>),
        encode: Some(encode::<T, BYTES>),
        dot_ref: Some(dot_ref::<T, BYTES>),
        ..TypeInfo::sized(id, name, 1, BYTES)
    }
}

/// Where a number stands in its bytes, which are nothing else.
pub(super) const fn value(format: Format) -> Field {
    Field::new(Part::Value, format, 0)
}

fn decode<T: Number<BYTES>, const BYTES: usize>(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out) {
        *y = T::read(*b);
    }
}

fn encode<T: Number<BYTES>, const BYTES: usize>(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    for (v, b) in x.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        *b = T::write(*v);
    }
}

/// `f32` products of the values (exact for F16), summed in order in double precision.
fn dot_ref<T: Number<BYTES>, const BYTES: usize>(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f64;
    for (a, b) in w.as_chunks::<BYTES>().0.iter().zip(x.as_chunks::<BYTES>().0) {
        acc += f64::from(T::read(*a) * T::read(*b));
    }
    acc as f32
}
