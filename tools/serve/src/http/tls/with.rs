//! TLS by rustls.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};

use anyhow::{Context as _, Result, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use trine_tools::text;

use super::Files;
use crate::http::connection::Stream;
#[cfg(unix)]
use crate::http::keys::check_mode;

/// The certificate of a server, which can be changed while it runs.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    /// For connections from now on.
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads a certificate and its key.
    ///
    /// # Errors
    /// A file cannot be read, holds no certificate or key, or is not for the other; everybody can read the key; this
    /// processor is too old.
    pub fn new(files: Files) -> Result<Tls> {
        let config = RwLock::new(config(&files)?);
        Ok(Tls { files, config })
    }

    /// Reads the files again, for connections from now on. Where that fails all stays as it was.
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub fn read_again(&self) -> Result<()> {
        let new = config(&self.files)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// A connection whose client has to speak TLS. Its handshake is a part of reading the first request, and has the
    /// time that this has.
    pub fn secure(&self, stream: Box<dyn Stream>) -> Box<dyn Stream> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        Box::new(Secure::Handshake(Box::new(TlsAcceptor::from(config).accept(stream))))
    }
}

fn config(files: &Files) -> Result<Arc<ServerConfig>> {
    ensure!(
        graviola::util::is_cpu_supported(),
        "--ssl-cert-file: this processor is too old for TLS; a proxy in front can speak it"
    );
    #[cfg(unix)]
    check_mode(&files.key).context("--ssl-key-file")?;
    let (cert, key) = (files.certificate.display(), files.key.display());
    let bytes = text::read_file(&files.certificate).context("--ssl-cert-file")?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .with_context(|| format!("--ssl-cert-file: '{cert}' is damaged"))?;
    ensure!(!chain.is_empty(), "--ssl-cert-file: '{cert}' has no certificate in PEM");
    let bytes = text::read_file(&files.key).context("--ssl-key-file")?;
    let secret = PrivateKeyDer::from_pem_slice(&bytes)
        .with_context(|| format!("--ssl-key-file: '{key}' has no private key in PEM"))?;
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(chain, secret);
    let mut config = config.with_context(|| format!("--ssl-cert-file: '{cert}' and '{key}' do not fit together"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A connection whose handshake is done.
type Encrypted = TlsStream<Box<dyn Stream>>;

/// A connection with TLS.
enum Secure {
    Handshake(Box<Accept<Box<dyn Stream>>>),
    Open(Box<Encrypted>),
    /// The handshake failed, or was left.
    Failed,
}

impl Secure {
    /// The connection when its handshake is done.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut Encrypted>>> {
        if let Secure::Handshake(accept) = self {
            match ready!(Pin::new(accept).poll(cx)) {
                Ok(stream) => *self = Secure::Open(Box::new(stream)),
                Err(e) => {
                    *self = Secure::Failed;
                    return Poll::Ready(Err(e));
                }
            }
        }
        Poll::Ready(match self {
            Secure::Open(stream) => Ok(Pin::new(&mut **stream)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl AsyncRead for Secure {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_read(cx, to)
    }
}

impl AsyncWrite for Secure {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self, Secure::Open(stream) if stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Before the handshake there is nothing to be sent.
        match &mut *self {
            Secure::Open(stream) => Pin::new(&mut **stream).poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Secure::Open(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
            // Nobody waits for a handshake at the end.
            other => {
                *other = Secure::Failed;
                Poll::Ready(Ok(()))
            }
        }
    }
}
