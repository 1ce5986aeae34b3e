//! Where a system has no libraries that could be opened at run time, such as WebAssembly's: one that never is.

use std::io;

/// A library; there is none.
pub(super) enum Library {}

impl Library {
    /// # Errors
    /// Always.
    ///
    /// # Safety
    /// Nothing is asked for; the real one runs what it opens.
    pub(super) unsafe fn new(_name: &str) -> io::Result<Library> {
        let why = "this system opens no libraries";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// # Errors
    /// Never asked, since there is no library.
    ///
    /// # Safety
    /// Never called, since there is no library.
    pub(super) unsafe fn get<F>(&self, _name: &str) -> io::Result<&F> {
        match *self {}
    }
}
