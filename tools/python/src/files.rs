//! `trine.inspect`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::{failed, opened};
use crate::values;

/// The contents of a GGUF file: its metadata, and its tensors with name, type, shape (rows first) and bytes. Nothing is
/// loaded.
///
/// >>> import trine
/// >>> file = trine.inspect("model.gguf")
/// >>> file["architecture"], file["tensors"][0]["type"]
/// ('llama', 'f16')
#[pyfunction]
pub fn inspect(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let file = py.detach(|| trine::open_file(&path, true)).map_err(opened)?;
    let tensors = PyList::empty(py);
    for tensor in file.tensors() {
        let shape: Vec<u64> = tensor.shape.iter().rev().copied().collect();
        let row = PyDict::new(py);
        row.set_item("name", &tensor.name)?;
        row.set_item("type", tensor.ty.to_string())?;
        row.set_item("shape", shape)?;
        row.set_item("bytes", tensor.bytes)?;
        tensors.append(row)?;
    }
    let whole = PyDict::new(py);
    let files = file.shards().iter().map(|s| s.path.clone());
    whole.set_item("files", files.collect::<Vec<_>>())?;
    whole.set_item("architecture", file.meta().get_str("general.architecture").map_err(failed)?)?;
    whole.set_item("metadata", values::metadata(py, file.meta())?)?;
    whole.set_item("tensors", tensors)?;
    Ok(whole)
}
