//! The stream that carries bytes to a client and back.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection of any kind: of a port, of a file, encrypted.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
