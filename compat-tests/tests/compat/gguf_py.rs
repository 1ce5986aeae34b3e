//! gguf-py reads what trine writes and trine reads what gguf-py writes: keys, types, places, bytes, and
//! the decoded weights of every type that gguf-py decodes.

use std::path::PathBuf;

use serde_json::Value as Json;
use trine_compat_tests::gguf_py::{self, listing};
use trine_compat_tests::models::{self, BITNET, TRILM};
use trine_compat_tests::{files, golden, or_skip, testdata};
use trine_formats::imatrix::{Entry, FileFormat, Imatrix};
use trine_formats::types::TypeId;

/// gguf-py 0.19.0 does not know Q2_0, and takes a block of Q8_1 for 40 bytes (it was so in 2023).
const UNKNOWN: [TypeId; 2] = [TypeId::Q2_0, TypeId::Q8_1];

/// Everything must be equal; the decoded weights where both decode.
#[track_caller]
fn assert_equal(ours: &Json, theirs: &Json, what: &str) -> usize {
    for key in ["alignment", "data_offset", "fields"] {
        assert_eq!(ours[key], theirs[key], "{what}: {key}");
    }
    let list = |j: &Json| j["tensors"].as_array().expect("tensors").clone();
    let (ours, theirs) = (list(ours), list(theirs));
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let mut decoded = 0;
    for (a, b) in ours.iter().zip(&theirs) {
        for key in ["name", "shape", "type", "offset", "bytes", "sha256"] {
            assert_eq!(a[key], b[key], "{what}: {key} of {}", b["name"]);
        }
        if !a["floats"].is_null() && !b["floats"].is_null() {
            assert_eq!(a["floats"], b["floats"], "{what}: decoded {}", b["name"]);
            decoded += 1;
        }
    }
    decoded
}

#[test]
fn gguf_py_reads_a_file_of_every_value_and_tensor_type() {
    let Some(python) = or_skip(gguf_py::get()) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let types: Vec<TypeId> = files::ggml_types().map(|t| t.id).collect();
    let known: Vec<TypeId> = types.iter().copied().filter(|t| !UNKNOWN.contains(t)).collect();
    let path = dir.path().join("every.gguf");
    files::write(&path, &files::every_value(), &files::one_of_each(&known));
    let theirs = python.list(std::slice::from_ref(&path)).expect("a listing");
    let decoded = assert_equal(&listing(&path).expect("a listing"), &theirs[0], "every type");
    assert_eq!(decoded, 26, "types that both decode");
}

#[test]
fn what_gguf_py_gets_wrong() {
    let Some(python) = or_skip(gguf_py::get()) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let listed = |ty: TypeId| {
        let path = dir.path().join("one.gguf");
        files::write(&path, &files::every_value(), &files::one_of_each(&[ty]));
        python.list(&[path])
    };
    let error = listed(TypeId::Q2_0).expect_err("Q2_0 is known now: compare it above");
    let error = format!("{error:#}");
    assert!(error.contains("(42) is not a valid GGMLQuantizationType"), "{error}");
    let error = listed(TypeId::Q8_1).expect_err("Q8_1 has another size now: compare it above");
    let error = format!("{error:#}");
    assert!(error.contains("cannot reshape array of size 288 into shape (320,)"), "{error}");
}

#[test]
fn trine_reads_and_encodes_what_gguf_py_writes() {
    let Some(python) = or_skip(gguf_py::get()) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("python.gguf");
    python.write(&path).expect("a file");
    let theirs = python.list(std::slice::from_ref(&path)).expect("a listing");
    let decoded = assert_equal(&listing(&path).expect("a listing"), &theirs[0], "python's file");
    assert_eq!(decoded, 10);

    let file = files::model(files::read(&path));
    let data = |name: &str| file.tensor_data(file.tensor_info(name).expect("a tensor")).expect("data");
    let weights = data("weights");
    let words = weights.as_chunks().0;
    let x: Vec<f32> = words.iter().map(|w| f32::from_le_bytes(*w)).collect();
    for t in file.tensors().filter(|t| t.name != "weights") {
        let encode = t.ty.info().and_then(|i| i.encode).expect("an encoder");
        let mut got = vec![0; t.bytes as usize];
        encode(&x, None, &mut got);
        assert_eq!(got, data(&t.name)[..], "{}", t.name);
    }
}

#[test]
fn gguf_py_reads_quantized_models_and_the_bundled_files() {
    let Some(python) = or_skip(gguf_py::get()) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut paths: Vec<PathBuf> =
        vec![testdata("imatrix/trilm-F16.imatrix.gguf"), models::bundled(TRILM).expect("a model")];
    let lines = golden::quantized().expect("hashes");
    for (source, ty) in [(TRILM, "TQ1_0"), (TRILM, "Q4_K_M"), (BITNET, "TQ2_0"), (BITNET, "Q3_K_M")] {
        let line = lines.iter().find(|l| l.source == source && l.ty == ty && l.options.is_empty());
        let source = models::bundled(source).expect("a model");
        paths.push(models::quantize(&source, line.expect("a hash"), dir.path()).expect("a file"));
    }
    for (path, theirs) in paths.iter().zip(python.list(&paths).expect("listings")) {
        let decoded = assert_equal(&listing(path).expect("a listing"), &theirs, &path.display().to_string());
        assert!(decoded >= 56, "{}: only {decoded} tensors", path.display());
    }
}

#[test]
fn gguf_py_reads_an_importance_matrix() {
    let Some(python) = or_skip(gguf_py::get()) else {
        return;
    };
    let mut matrix = Imatrix::new(512);
    matrix.datasets = vec!["a.txt".to_owned(), "b.txt".to_owned()];
    for (name, counts) in [("blk.0.ffn_up_exps.weight", vec![512, 0, 3]), ("w", vec![7])] {
        let sums = (0..counts.len() * 5).map(|i| i as f32 / 3.0).collect();
        matrix.entries.insert(name.to_owned(), Entry { sums, counts });
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("imatrix.gguf");
    std::fs::write(&path, matrix.to_bytes(FileFormat::Gguf).expect("bytes")).expect("a file");
    let theirs = python.list(std::slice::from_ref(&path)).expect("a listing");
    let ours = listing(&path).expect("a listing");
    assert_eq!(assert_equal(&ours, &theirs[0], "importance matrix"), 4);
}
