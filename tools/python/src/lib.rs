//! The Python module `trine._trine`, which the package `trine` shows: thin wrappers of the library, whose bits they
//! have.
//!
//! Work that takes time is done without the interpreter's lock. Errors of the library are `trine.Error`s with its line.

mod error;
mod files;
mod model;
mod values;

use pyo3::prelude::*;

use error::Error;

/// The module.
#[pymodule]
fn _trine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<model::Model>()?;
    module.add_class::<model::Generation>()?;
    module.add_function(wrap_pyfunction!(files::quantize, module)?)?;
    module.add_function(wrap_pyfunction!(files::inspect, module)?)
}
