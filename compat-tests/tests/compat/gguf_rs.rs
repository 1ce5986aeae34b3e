//! gguf-rs, a reader written by others, sees in trine's files what trine wrote; and what it is known to
//! get wrong, so that a release that mends it is noticed.

use std::panic::catch_unwind;
use std::path::Path;

use serde_json::Value as Json;
use trine_compat_tests::files;
use trine_compat_tests::models::{self, BITNET, TRILM};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Array, Gguf, Limits, Metadata, Value};
use trine_formats::types::TypeId;

/// Types that gguf-rs 0.1.8 knows and computes wrong sizes for: it takes every type above 9 for one of
/// blocks of 256, and Q8_1 and MXFP4 for other structs.
const WRONG_SIZE: [TypeId; 9] = [
    TypeId::Q8_1,
    TypeId::IQ4_NL,
    TypeId::I8,
    TypeId::I16,
    TypeId::I32,
    TypeId::I64,
    TypeId::F64,
    TypeId::BF16,
    TypeId::MXFP4,
];
/// Types at which it panics or refuses the file.
const UNREADABLE: [TypeId; 3] = [TypeId::NVFP4, TypeId::Q1_0, TypeId::Q2_0];

fn decode(path: &Path) -> Result<gguf_rs::GGUFModel, String> {
    let name = path.to_str().expect("a path");
    let mut container = gguf_rs::get_gguf_container_array_size(name, u64::MAX).map_err(|e| e.to_string())?;
    container.decode().map_err(|e| e.to_string())
}

fn json(value: &Value) -> Json {
    match value {
        Value::U8(v) => (*v).into(),
        Value::I8(v) => (*v).into(),
        Value::U16(v) => (*v).into(),
        Value::I16(v) => (*v).into(),
        Value::U32(v) => (*v).into(),
        Value::I32(v) => (*v).into(),
        Value::F32(v) => (*v).into(),
        Value::Bool(v) => (*v).into(),
        Value::Str(v) => v.lossy().into_owned().into(),
        Value::Array(a) => (0..a.len()).filter_map(|i| a.value(i)).map(|v| json(&v)).collect(),
        Value::U64(v) => (*v).into(),
        Value::I64(v) => (*v).into(),
        Value::F64(v) => (*v).into(),
    }
}

/// gguf-rs must see the same keys and tensors; returns how many tensors had a size to compare.
#[track_caller]
fn assert_equal(path: &Path) -> usize {
    let bytes = std::fs::read(path).expect("a file");
    let ours = Gguf::parse(&bytes, &Limits::default()).expect("trine reads it");
    let theirs = decode(path).expect("gguf-rs reads it");
    assert_eq!(theirs.metadata().len(), ours.meta.len());
    for (key, value) in ours.meta.iter() {
        assert_eq!(theirs.metadata().get(key), Some(&json(value)), "{key}");
    }
    assert_eq!(theirs.alignment(), ours.alignment);
    assert_eq!(theirs.data_offset(), ours.data_offset);
    assert_eq!(theirs.tensors().len(), ours.tensors.len());
    let mut sized = 0;
    for (a, b) in ours.tensors.iter().zip(theirs.tensors()) {
        assert_eq!((&a.name, &a.shape, a.ty.file_id(), a.offset), (&b.name, &b.shape, b.kind, b.offset));
        if !WRONG_SIZE.contains(&a.ty) {
            assert_eq!(a.bytes, b.size, "{}", a.name);
            sized += 1;
        }
    }
    sized
}

#[test]
fn every_value_and_tensor_type() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("every.gguf");
    let types: Vec<TypeId> = files::ggml_types().map(|t| t.id).filter(|t| !UNREADABLE.contains(t)).collect();
    files::write(&path, &files::every_value(), &files::one_of_each(&types));
    assert_eq!(assert_equal(&path), types.len() - WRONG_SIZE.len());
}

#[test]
fn another_alignment() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("aligned.gguf");
    let mut meta = files::every_value();
    meta.set("general.alignment", Value::U32(4096));
    files::write(&path, &meta, &files::one_of_each(&[TypeId::TQ1_0, TypeId::TQ2_0]));
    assert_eq!(assert_equal(&path), 2);
}

#[test]
fn quantized_models() {
    let dir = tempfile::tempdir().expect("a directory");
    for (model, ty) in [(TRILM, "TQ2_0"), (TRILM, "Q5_K_M"), (BITNET, "TQ1_0"), (BITNET, "Q2_K")] {
        let path = dir.path().join("model.gguf");
        let source = models::bundled(model).expect("a model");
        trine_compat_tests::programs::quantize(&source, &path, ty, &[], dir.path()).expect("a file");
        assert!(assert_equal(&path) >= 56, "{model} {ty}");
    }
}

/// A file with one tensor of 1024 weights, its bytes as many as `bytes`.
fn one_tensor(path: &Path, ty: u32, bytes: u64) {
    let tensor = NewTensor { bytes: Some(bytes), ..NewTensor::new("t", [1024], TypeId(ty)) };
    let data = vec![0; bytes as usize];
    // Number 36 would be taken for bitnet.cpp's type by its size.
    let mut meta = Metadata::default();
    meta.set("trine.dialect", Value::str("ggml"));
    files::write(path, &meta, &[(tensor, data)]);
}

/// Size in bytes that gguf-rs gives a tensor of 1024 weights.
fn their_size(ty: u32, bytes: u64) -> Result<u64, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("one.gguf");
    one_tensor(&path, ty, bytes);
    Ok(decode(&path)?.tensors()[0].size)
}

#[test]
fn known_wrong_sizes() {
    let true_size = |ty: TypeId| ty.info().and_then(|i| i.row_bytes(1024)).expect("a size");
    let known = [
        (TypeId::Q8_1, 1280),
        (TypeId::IQ4_NL, 72),
        (TypeId::I8, 4),
        (TypeId::I16, 8),
        (TypeId::I32, 16),
        (TypeId::I64, 32),
        (TypeId::F64, 32),
        (TypeId::BF16, 8),
        (TypeId::MXFP4, 1092),
    ];
    assert_eq!(known.map(|(ty, _)| ty), WRONG_SIZE);
    for (ty, wrong) in known {
        assert_eq!(their_size(ty.0, true_size(ty)), Ok(wrong), "{ty}");
        assert_ne!(wrong, true_size(ty), "{ty}");
    }
    // I2_S of bitnet.cpp: the name of a removed type, and no size.
    assert_eq!(their_size(36, 288), Ok(0));
}

#[test]
fn known_panic_and_refusals() {
    let panics = catch_unwind(|| their_size(TypeId::NVFP4.0, 576));
    assert!(panics.is_err(), "gguf-rs reads NVFP4 now: {panics:?}");
    for ty in [TypeId::Q1_0.0, TypeId::Q2_0.0, 99, 135] {
        let size = TypeId(ty).info().and_then(|i| i.row_bytes(1024)).unwrap_or(288);
        let refused = their_size(ty, size).expect_err("gguf-rs reads this type now");
        assert!(refused.contains("invalid GGML type"), "{ty}: {refused}");
    }
}

/// Files that trine refuses and gguf-rs takes.
#[test]
fn known_leniency() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bad.gguf");
    let lenient = |bytes: &[u8], what: &str| {
        assert!(Gguf::parse(bytes, &Limits::default()).is_err(), "{what}");
        std::fs::write(&path, bytes).expect("a file");
        assert!(decode(&path).is_ok(), "gguf-rs refuses {what} now");
    };
    let header = |tensors: u64, keys: u64| {
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend(tensors.to_le_bytes());
        out.extend(keys.to_le_bytes());
        out
    };
    let tensor = |shape: u64, ty: u32| {
        let mut out = header(1, 0);
        out.extend(b"\x01\0\0\0\0\0\0\0t\x01\0\0\0");
        out.extend(shape.to_le_bytes());
        out.extend(ty.to_le_bytes());
        out.extend([0; 8]);
        out.resize(out.len() + 640, 0);
        out
    };
    lenient(&tensor(100, 12), "Q4_K rows of 100");
    lenient(&tensor(1 << 50, 0), "2^50 weights");
    for alignment in [0u32, 3] {
        let mut bytes = header(0, 1);
        bytes.extend(b"\x11\0\0\0\0\0\0\0general.alignment\x04\0\0\0");
        bytes.extend(alignment.to_le_bytes());
        lenient(&bytes, "an alignment that is no power of two");
    }
    let mut meta = Metadata::default();
    meta.set("aa", Value::U32(1));
    meta.set("ab", Value::Array(Array::U8(vec![1])));
    let mut bytes = files::bytes(&meta, &[]);
    let at = bytes.windows(2).position(|w| w == b"ab").expect("the key");
    bytes[at + 1] = b'a';
    lenient(&bytes, "a key that comes twice");
}
