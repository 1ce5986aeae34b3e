//! The Python module `trine._trine`, which the package `trine` shows: thin wrappers of the library, whose bits they
//! have.
//!
//! Work that takes time is done without the interpreter's lock, and ends at Ctrl-C. What the library refuses is a
//! `trine.Error`, a `ValueError`, with its line; files that the system refuses are `OSError`s.

mod chat;
mod error;
mod evaluate;
mod files;
mod generation;
#[cfg(feature = "hub")]
mod hub;
mod interrupt;
mod loaded;
mod model;
mod options;
mod quantize;
mod values;

use pyo3::prelude::*;

use error::Error;

/// The module.
#[pymodule]
fn _trine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("OPTIONS", options::names().collect::<Vec<_>>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<model::Model>()?;
    module.add_class::<generation::Generation>()?;
    #[cfg(feature = "hub")]
    {
        module.add_function(wrap_pyfunction!(hub::fetch, module)?)?;
        module.add_function(wrap_pyfunction!(hub::installed, module)?)?;
    }
    module.add_function(wrap_pyfunction!(quantize::quantize, module)?)?;
    module.add_function(wrap_pyfunction!(files::inspect, module)?)
}
