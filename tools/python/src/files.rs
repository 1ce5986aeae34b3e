//! `trine.quantize` and `trine.inspect`.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use trine::formats::imatrix::Imatrix;
use trine::quant::{Fallback, Importance, Selection};
use trine::{Recipe, Target};

use crate::error::failed;
use crate::values;

/// Writes the model of `source` as `target` in a file type that llama-quantize knows, byte for byte as it would. The
/// file appears when it is complete. Returns its size in bytes.
#[pyfunction]
#[pyo3(signature = (source, target, file_type, *, imatrix=None, pure=false, allow_requantize=false, leave_output_tensor=false))]
#[allow(clippy::too_many_arguments)]
pub fn quantize(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    file_type: &str,
    imatrix: Option<PathBuf>,
    pure: bool,
    allow_requantize: bool,
    leave_output_tensor: bool,
) -> PyResult<u64> {
    let unknown = || PyValueError::new_err(format!("'{file_type}' is no file type"));
    let mut recipe = Recipe {
        pure,
        allow_requantize,
        leave_output: leave_output_tensor,
        // Rows that are no whole blocks get the wider type, as llama-quantize and rquantize give it.
        fallback: Fallback::Mixtures,
        ..Recipe::new(Target::parse(file_type).filter(Target::is_usual).ok_or_else(unknown)?)
    };
    let done = py.detach(|| {
        if let Some(path) = imatrix {
            recipe.importance = importance(&path)?;
        }
        let model = trine::open_file(&source, true).map_err(failed)?;
        trine::quantize(&model, &recipe, &target).map_err(failed)
    });
    Ok(done?.file_bytes)
}

fn importance(path: &PathBuf) -> PyResult<Option<Importance>> {
    let shown = path.display().to_string();
    let within = |e: &dyn std::fmt::Display| failed(format!("'{shown}': {e}"));
    let bytes = std::fs::read(path).map_err(|e| within(&e))?;
    let matrix = Imatrix::parse(&bytes).map_err(|e| within(&e))?;
    Importance::from_file(&matrix, &shown, &Selection::default()).map_err(|e| within(&e))
}

/// The contents of a GGUF file: its metadata, and its tensors with name, type, shape (rows first) and bytes. Nothing is
/// loaded.
#[pyfunction]
pub fn inspect(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let file = py.detach(|| trine::open_file(&path, true)).map_err(failed)?;
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
