//! GGUF files in memory, whole models and small ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Gguf, Limits, Metadata, ModelFile, Shard};

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
