//! GGUF files in memory.

use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Array, Metadata, StrArray, Value};
use trine_formats::types::{REGISTRY, TypeId, TypeInfo};

use crate::inputs::Rng;

pub use trine_testkit::gguf::{bytes, model, write};
pub use trine_testkit::read;

/// Metadata with every scalar type, an array of each, an empty array and the extreme values.
pub fn every_value() -> Metadata {
    let mut meta = Metadata::default();
    let text = "é世\n\u{1f600}";
    let mut strings = StrArray::default();
    for s in ["", text, "token"] {
        strings.push(s.as_bytes());
    }
    let values = [
        ("general.architecture", Value::str("llama")),
        ("test.u8", Value::U8(255)),
        ("test.i8", Value::I8(-128)),
        ("test.u16", Value::U16(u16::MAX)),
        ("test.i16", Value::I16(i16::MIN)),
        ("test.u32", Value::U32(u32::MAX)),
        ("test.i32", Value::I32(i32::MIN)),
        ("test.u64", Value::U64(u64::MAX)),
        ("test.i64", Value::I64(i64::MIN)),
        ("test.f32", Value::F32(0.1)),
        ("test.f64", Value::F64(-0.1)),
        ("test.bool", Value::Bool(true)),
        ("test.str", Value::str(text)),
        ("test.empty", Value::str("")),
        ("test.array.u8", Value::Array(Array::U8(vec![0, 255]))),
        ("test.array.i8", Value::Array(Array::I8(vec![-128, 127]))),
        ("test.array.u16", Value::Array(Array::U16(vec![1, u16::MAX]))),
        ("test.array.i16", Value::Array(Array::I16(vec![i16::MIN, 3]))),
        ("test.array.u32", Value::Array(Array::U32(vec![7, u32::MAX]))),
        ("test.array.i32", Value::Array(Array::I32(vec![i32::MIN, -1]))),
        ("test.array.u64", Value::Array(Array::U64(vec![u64::MAX]))),
        ("test.array.i64", Value::Array(Array::I64(vec![i64::MIN]))),
        ("test.array.f32", Value::Array(Array::F32(vec![1e-45, -0.0, 3.5]))),
        ("test.array.f64", Value::Array(Array::F64(vec![1e-300, 2.5]))),
        ("test.array.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("test.array.str", Value::Array(Array::Str(strings))),
        ("test.array.none", Value::Array(Array::U32(Vec::new()))),
    ];
    for (key, value) in values {
        meta.set(key, value);
    }
    meta
}

/// The registered types that are ggml's own: not those of forks, whose numbers mean other types to
/// ggml's readers.
pub fn ggml_types() -> impl Iterator<Item = &'static TypeInfo> {
    REGISTRY.iter().filter(|t| t.id.file_id() == t.id.0)
}

/// One small tensor of each of these types, and their data: random bytes with the seed of the name.
pub fn one_of_each(types: &[TypeId]) -> Vec<(NewTensor, Vec<u8>)> {
    let mut out = Vec::new();
    for (i, ty) in types.iter().enumerate() {
        let Some(info) = ty.info() else { continue };
        // Odd numbers of blocks, so that most sizes need padding; 1 to 3 dimensions.
        let columns = 256u64.max(info.block as u64) * (1 + i as u64 % 3);
        let shape = [vec![columns], vec![columns, 3], vec![columns, 2, 3]][i % 3].clone();
        let rows: u64 = shape[1..].iter().product();
        let bytes = info.row_bytes(columns).unwrap_or(0) * rows;
        let name = format!("blk.{i}.{}.weight", info.name);
        let data = Rng::named(&name).bytes(bytes as usize);
        out.push((NewTensor::new(name, shape, *ty), data));
    }
    out
}
