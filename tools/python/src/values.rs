//! Metadata and numbers as Python has them.

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};
use serde_json::Value as Json;
use trine::formats::gguf::{Array, Metadata, Value};

/// A text, or several.
#[derive(FromPyObject)]
pub enum Words {
    /// A text.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl From<Words> for Vec<String> {
    fn from(words: Words) -> Vec<String> {
        match words {
            Words::One(text) => vec![text],
            Words::Several(texts) => texts,
        }
    }
}

/// Dicts, lists, texts and numbers as JSON.
///
/// # Errors
/// A `TypeError`: something else is among them.
pub fn json(value: &Bound<'_, PyAny>) -> PyResult<Json> {
    let text: String = value.py().import("json")?.call_method1("dumps", (value,))?.extract()?;
    serde_json::from_str(&text).map_err(|e| pyo3::exceptions::PyValueError::new_err(format!("no JSON: {e}")))
}

/// A dict of all keys. Texts that are not UTF-8 are `bytes`.
pub fn metadata<'py>(py: Python<'py>, meta: &Metadata) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in meta.iter() {
        dict.set_item(key, of(py, value)?)?;
    }
    Ok(dict)
}

fn of(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::U8(n) => n.into_py_any(py),
        Value::I8(n) => n.into_py_any(py),
        Value::U16(n) => n.into_py_any(py),
        Value::I16(n) => n.into_py_any(py),
        Value::U32(n) => n.into_py_any(py),
        Value::I32(n) => n.into_py_any(py),
        Value::U64(n) => n.into_py_any(py),
        Value::I64(n) => n.into_py_any(py),
        Value::F32(x) => x.into_py_any(py),
        Value::F64(x) => x.into_py_any(py),
        Value::Bool(b) => b.into_py_any(py),
        Value::Str(text) => words(py, &text.0),
        Value::Array(array) => list(py, array),
    }
}

fn list(py: Python<'_>, array: &Array) -> PyResult<Py<PyAny>> {
    match array {
        // A Vec<u8> would become bytes.
        Array::U8(a) => a.iter().map(|&n| u32::from(n)).collect::<Vec<_>>().into_py_any(py),
        Array::I8(a) => a.clone().into_py_any(py),
        Array::U16(a) => a.clone().into_py_any(py),
        Array::I16(a) => a.clone().into_py_any(py),
        Array::U32(a) => a.clone().into_py_any(py),
        Array::I32(a) => a.clone().into_py_any(py),
        Array::U64(a) => a.clone().into_py_any(py),
        Array::I64(a) => a.clone().into_py_any(py),
        Array::F32(a) => a.clone().into_py_any(py),
        Array::F64(a) => a.clone().into_py_any(py),
        Array::Bool(a) => a.clone().into_py_any(py),
        Array::Str(a) => {
            let all: PyResult<Vec<Py<PyAny>>> = a.iter().map(|text| words(py, text)).collect();
            all?.into_py_any(py)
        }
    }
}

fn words(py: Python<'_>, text: &[u8]) -> PyResult<Py<PyAny>> {
    match std::str::from_utf8(text) {
        Ok(text) => text.into_py_any(py),
        Err(_) => text.into_py_any(py),
    }
}

/// `rows` rows of numbers as a NumPy array `[rows][columns]` in single precision, which owns its memory.
pub fn array<'py>(py: Python<'py>, numbers: &[f32], rows: usize) -> PyResult<Bound<'py, PyAny>> {
    let columns = numbers.len() / rows.max(1);
    let bytes = PyByteArray::new_with(py, size_of_val(numbers), |to| {
        for (to, number) in to.chunks_exact_mut(size_of::<f32>()).zip(numbers) {
            to.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })?;
    let numpy = py.import("numpy")?;
    let flat = numpy.call_method1("frombuffer", (bytes, "=f4"))?;
    flat.call_method1("reshape", (rows, columns))
}
