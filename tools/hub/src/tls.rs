//! Who is believed to be a server, and what TLS is made of.
//!
//! Cryptography comes from `graviola`, Rust and assembly, so that no C compiler is needed. It wants processors of the
//! last ten years; on others `https://` is refused with a sentence, and `http://` goes on.

use std::path::Path;

use trine_formats::limited::read_regular;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::HubError;

/// The largest file of certificates that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// The settings of TLS, with the usual certificates and those of `file`. `None` where this processor can do no TLS.
///
/// # Errors
/// The file cannot be read, or has no certificate in it.
pub fn config(file: Option<&Path>) -> Result<Option<TlsConfig>, HubError> {
    let mut roots: Vec<Certificate<'static>> =
        webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    if let Some(file) = file {
        roots.extend(read(file)?);
    }
    Ok(with_provider(RootCerts::from(roots)))
}

fn read(file: &Path) -> Result<Vec<Certificate<'static>>, HubError> {
    let bytes = read_regular(file, LARGEST).map_err(HubError::io("read SSL_CERT_FILE", file))?;
    let items = parse_pem(&bytes).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let found: Vec<Certificate<'static>> = items.collect();
    match found.is_empty() {
        true => Err(HubError::Tls(format!("SSL_CERT_FILE: '{}' has no certificate in PEM", file.display()))),
        false => Ok(found),
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn with_provider(roots: RootCerts) -> Option<TlsConfig> {
    if !graviola::util::is_cpu_supported() {
        return None;
    }
    let provider = std::sync::Arc::new(rustls_graviola::default_provider());
    Some(TlsConfig::builder().root_certs(roots).unversioned_rustls_crypto_provider(provider).build())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn with_provider(_: RootCerts) -> Option<TlsConfig> {
    None
}
