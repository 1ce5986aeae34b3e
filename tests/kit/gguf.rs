//! GGUF files in memory, whole models and small ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Array, Gguf, Limits, Metadata, ModelFile, Shard, Value};

/// The parsed header of a file.
#[track_caller]
pub fn header(bytes: &[u8]) -> Gguf {
    Gguf::parse(bytes, &Limits::default()).expect("a valid header")
}

/// A model of one file from its bytes.
#[track_caller]
pub fn model(bytes: Vec<u8>) -> ModelFile {
    model_at(PathBuf::new(), bytes, &Limits::default())
}

/// The same, read from `path`.
#[track_caller]
pub fn open(path: &Path) -> ModelFile {
    model_at(path.to_owned(), super::read(path), &Limits::default())
}

/// The same, with the path that messages name and limits of its own.
#[track_caller]
pub fn model_at(path: PathBuf, bytes: Vec<u8>, limits: &Limits) -> ModelFile {
    let gguf = Gguf::parse(&bytes, limits).expect("a valid header");
    let bytes = Arc::new(bytes);
    ModelFile::new(vec![Shard { path, gguf, bytes }]).expect("a whole model")
}

/// The bytes of a file with these keys and tensors, as trine writes it.
#[track_caller]
pub fn bytes(meta: &Metadata, tensors: &[(NewTensor, Vec<u8>)]) -> Vec<u8> {
    let table: Vec<NewTensor> = tensors.iter().map(|(t, _)| t.clone()).collect();
    let layout = Layout::new(meta, &table).expect("a layout");
    let mut out = layout.header().to_vec();
    let start = out.len();
    out.resize(layout.file_bytes() as usize, 0);
    for (place, (tensor, data)) in layout.tensors().iter().zip(tensors) {
        assert_eq!(place.bytes, data.len() as u64, "{}", tensor.name);
        let at = start + place.offset as usize;
        out[at..at + data.len()].copy_from_slice(data);
    }
    out
}

/// Writes such a file.
#[track_caller]
pub fn write(path: &Path, meta: &Metadata, tensors: &[(NewTensor, Vec<u8>)]) {
    let written = std::fs::write(path, bytes(meta, tensors));
    written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// The bundled model with control tokens of these names, by their ids.
pub fn with_controls(path: &Path, names: &[(usize, &str)]) {
    let file = open(&super::trilm());
    let mut meta = file.meta().clone();
    let array = |key: &str| match meta.get(key) {
        Some(Value::Array(array)) => array.clone(),
        other => panic!("{key}: {other:?}"),
    };
    let (tokens, types) = (array("tokenizer.ggml.tokens"), array("tokenizer.ggml.token_type"));
    let (Array::Str(tokens), Array::I32(mut types)) = (tokens, types) else {
        panic!("a vocabulary");
    };
    names.iter().for_each(|&(id, _)| types[id] = 3);
    let named = |id: usize| names.iter().find(|(at, _)| *at == id).map(|(_, name)| name.as_bytes());
    // nothing is merged to what they were before
    let old: Vec<String> =
        names.iter().map(|&(id, _)| String::from_utf8_lossy(tokens.get(id).expect("a token")).into_owned()).collect();
    let Array::Str(merges) = array("tokenizer.ggml.merges") else {
        panic!("merges");
    };
    let stays = |merge: &&[u8]| {
        let merge = String::from_utf8_lossy(merge);
        !old.contains(&merge.replacen(' ', "", 1)) && !merge.split(' ').any(|part| old.iter().any(|old| old == part))
    };
    let merges = merges.iter().filter(stays).collect();
    let tokens = tokens.iter().enumerate().map(|(id, old)| named(id).unwrap_or(old)).collect();
    meta.put("tokenizer.ggml.merges", Value::Array(Array::Str(merges)));
    meta.put("tokenizer.ggml.tokens", Value::Array(Array::Str(tokens)));
    meta.put("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    let tensors: Vec<(NewTensor, Vec<u8>)> = file
        .tensors()
        .map(|t| {
            let data = file.tensor(&t.name).expect("a tensor").data.to_vec();
            (NewTensor::new(t.name.clone(), t.shape.clone(), t.ty), data)
        })
        .collect();
    write(path, &meta, &tensors);
}
