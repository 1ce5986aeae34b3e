//! `trine.fetch`: models by name.

use std::path::PathBuf;

use pyo3::exceptions::{PyConnectionError, PyFileNotFoundError, PyPermissionError};
use pyo3::prelude::*;
use trine_hub::{Hub, HubError, Limit, Name, Places, Settings, Wanted, Watcher, find};

use crate::error::{caused, failed};
use crate::interrupt::abandonable;

/// The path of a model from a hub, fetched where it is not in the hub's cache yet. `name` is "USER/REPO" or
/// "USER/REPO:TYPE", such as "prism-ml/Ternary-Bonsai-8B-gguf:Q2_0"; `file` names a file of the repository instead of
/// a type, and `max_bytes` the size that it may have. `token` is for repositories that ask who you are; without it the
/// environment and the token of the hub's own client count, as for HF_ENDPOINT, HF_HUB_CACHE and HF_HUB_OFFLINE.
/// `progress` is called with the bytes that are there, with all of them, and with the name of the file.
///
/// The bytes that came stay when the program is stopped, and the next call goes on from there.
#[pyfunction]
#[pyo3(signature = (name, *, file=None, token=None, offline=false, max_bytes=None, progress=None))]
pub fn fetch(
    py: Python<'_>,
    name: &str,
    file: Option<String>,
    token: Option<String>,
    offline: bool,
    max_bytes: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<PathBuf> {
    let wanted = Wanted {
        name: Name::parse(name).map_err(|e| failed(e.to_string()))?,
        file,
        limit: max_bytes.map(|bytes| Limit { bytes, asked: true }),
    };
    let mut settings = Settings::from_env();
    settings.offline |= offline;
    settings.token = token.or(settings.token);
    let fetched = abandonable(py, move || {
        let hub = Hub::new(Places::from_env(), settings)?;
        hub.fetch(&wanted, &Screen::new(progress))
    })?;
    fetched.map_err(refused)
}

/// The path of a model by its name or a part of it, among those that are on this machine: in the cache of the hub's own
/// client, of llama.cpp and of ollama. None where there is none.
#[pyfunction]
pub fn installed(name: &str) -> Option<PathBuf> {
    find(&Places::from_env(), name).into_iter().next().map(|model| model.path)
}

fn refused(error: HubError) -> PyErr {
    let line = error.to_string();
    match error {
        HubError::NoNetwork { .. } | HubError::Broken { .. } => PyConnectionError::new_err(line),
        HubError::NotFound { .. } | HubError::Offline { .. } => PyFileNotFoundError::new_err(line),
        HubError::Gated { .. } | HubError::Denied { .. } => PyPermissionError::new_err(line),
        other => caused(&other),
    }
}

/// Tells Python how far a download is.
struct Screen {
    progress: Option<Py<PyAny>>,
    file: std::cell::RefCell<(String, u64, u64)>,
}

impl Screen {
    fn new(progress: Option<Py<PyAny>>) -> Screen {
        Screen { progress, file: Default::default() }
    }

    fn tell(&self) {
        let Some(progress) = &self.progress else { return };
        let (name, all, have) = self.file.borrow().clone();
        // A download does not end because somebody cannot show it.
        let _ = Python::try_attach(|py| {
            if let Err(error) = progress.call1(py, (have, all, name)) {
                error.write_unraisable(py, None);
            }
        });
    }
}

impl Watcher for Screen {
    fn say(&self, _: &str) {}

    fn begin(&self, file: &str, total: u64, have: u64) {
        *self.file.borrow_mut() = (file.to_owned(), total, have);
        self.tell();
    }

    fn advance(&self, bytes: u64) {
        self.file.borrow_mut().2 += bytes;
        self.tell();
    }

    fn end(&self) {}
}
