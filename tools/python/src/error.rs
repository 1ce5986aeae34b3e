//! Errors of the library as Python's.

use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(trine, Error, PyException, "What cannot be done, in one line.");

/// An error of the library as Python's.
pub(crate) fn failed(error: impl Display) -> PyErr {
    Error::new_err(error.to_string())
}
