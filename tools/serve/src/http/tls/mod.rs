//! TLS: the certificate and the key of the server, and connections that are encrypted with them.
//!
//! Cryptography comes from `graviola`, Rust and assembly, so that no C compiler is needed. It wants processors of the
//! last ten years; on others, and without the feature `tls`, the options are refused.

#[cfg(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod with;
#[cfg(not(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod without;

use std::path::PathBuf;

use anyhow::{Result, bail};

#[cfg(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use with::Tls;
#[cfg(not(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub use without::Tls;

use crate::args::Args;

/// The files of a server with TLS, in PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate, followed by those of authorities between it and one that clients know.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Files {
    /// The files that the options name; `None` for a server without TLS.
    ///
    /// # Errors
    /// One is named without the other.
    pub fn of(args: &Args) -> Result<Option<Files>> {
        match (&args.ssl_cert_file, &args.ssl_key_file) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(Files { certificate: certificate.clone(), key: key.clone() })),
            (Some(_), None) => bail!("--ssl-cert-file: give the certificate's key with --ssl-key-file"),
            (None, Some(_)) => bail!("--ssl-key-file: give the key's certificate with --ssl-cert-file"),
        }
    }
}
