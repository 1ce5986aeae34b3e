//! Errors of the library as Python's: files that the system refuses are `OSError`s, all else is `trine.Error`.

use std::error::Error as StdError;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;

use pyo3::create_exception;
use pyo3::exceptions::{PyFileNotFoundError, PyIsADirectoryError, PyOSError, PyPermissionError, PyValueError};
use pyo3::prelude::*;
use trine::OpenError;
use trine::eval::EvalError;
use trine::generate::GenerateError;

create_exception!(
    trine,
    Error,
    PyValueError,
    "A file, a text or an option that the library refuses: one line that says what is wrong and what can be done."
);

/// The numbers that Python's errors of these kinds have on every system.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EISDIR: i32 = 21;

/// An error without causes.
pub fn failed(error: impl Display) -> PyErr {
    Error::new_err(error.to_string())
}

/// An error with its causes in the same line; an `OSError` where the system's refusal is among them.
pub fn caused(error: &(dyn StdError + 'static)) -> PyErr {
    let mut line = error.to_string();
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut system = None;
    while let Some(error) = cause {
        let said = error.to_string();
        if !line.contains(&said) {
            line = format!("{line}: {said}");
        }
        system = system.or(error.downcast_ref::<io::Error>());
        cause = error.source();
    }
    match system.and_then(|error| Some((error.kind(), error.raw_os_error()?))) {
        Some((ErrorKind::NotFound, _)) => PyFileNotFoundError::new_err((ENOENT, line)),
        Some((ErrorKind::PermissionDenied, _)) => PyPermissionError::new_err((EACCES, line)),
        Some((_, number)) => PyOSError::new_err((number, line)),
        None => Error::new_err(line),
    }
}

/// A file that the system refuses, in the words that Python's own `open` has for it.
pub fn system(error: &io::Error, path: &Path) -> PyErr {
    let path = path.as_os_str().to_owned();
    match error.kind() {
        ErrorKind::NotFound => PyFileNotFoundError::new_err((ENOENT, "No such file or directory", path)),
        ErrorKind::PermissionDenied => PyPermissionError::new_err((EACCES, "Permission denied", path)),
        ErrorKind::IsADirectory => PyIsADirectoryError::new_err((EISDIR, "Is a directory", path)),
        _ => match error.raw_os_error() {
            Some(number) => PyOSError::new_err((number, error.to_string(), path)),
            None => PyOSError::new_err(format!("{}: {error}", path.to_string_lossy())),
        },
    }
}

/// A model that cannot be opened.
pub fn opened(error: OpenError) -> PyErr {
    match error {
        OpenError::Missing { path } | OpenError::DanglingLink { path } => system(&ErrorKind::NotFound.into(), &path),
        OpenError::Directory { path } => system(&ErrorKind::IsADirectory.into(), &path),
        OpenError::Open { path, error } | OpenError::Read { path, error } => system(&error, &path),
        other => caused(&other),
    }
}

/// A text that cannot be generated; options have the names that they have in Python.
pub fn generated(error: GenerateError) -> PyErr {
    match error {
        GenerateError::PromptTooLong { tokens, n_ctx, room } => failed(format!(
            "the prompt is too long: {tokens} tokens, but a context of {n_ctx} has room for {room}; \
             give a larger n_ctx or a shorter prompt"
        )),
        GenerateError::NoTemplate => failed("the model has no chat template; give one as chat_template"),
        other => caused(&other),
    }
}

/// A text that cannot be evaluated.
pub fn evaluated(error: EvalError) -> PyErr {
    match error {
        EvalError::TooShort { tokens, n_ctx, needed } => failed(format!(
            "the text is too short: {tokens} tokens, but a context of {n_ctx} needs at least {needed}; \
             give a longer text or a smaller n_ctx"
        )),
        EvalError::SmallContext(n_ctx) => {
            PyValueError::new_err(format!("n_ctx is {n_ctx}, which leaves no position to score: give 3 or more"))
        }
        EvalError::NoChunks => PyValueError::new_err("chunks is 0: give 1 or more, or None for the whole text"),
        other => caused(&other),
    }
}
