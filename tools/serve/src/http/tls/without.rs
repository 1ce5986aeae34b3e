//! Programs that were built without TLS.

use std::convert::Infallible;

use anyhow::{Result, bail};

use super::Files;
use crate::http::connection::Stream;

/// Never there.
#[derive(Debug)]
pub struct Tls(Infallible);

impl Tls {
    /// Refuses the files.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: Files) -> Result<Tls> {
        bail!(
            "--ssl-cert-file: this rserve was built without TLS, which needs the feature 'tls' and a processor of x86-64 or 64-bit ARM; a proxy in front can speak it"
        )
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn read_again(&self) -> Result<()> {
        match self.0 {}
    }

    /// Never called.
    pub fn secure(&self, _: Box<dyn Stream>) -> Box<dyn Stream> {
        match self.0 {}
    }
}
