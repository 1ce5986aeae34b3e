//! Where the server listens.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpListener;

use super::connection::Stream;
use super::tls::Tls;
use crate::args::Args;

/// An open socket.
pub enum Listener {
    /// An address and a port, and the certificate of a server with TLS.
    Tcp(TcpListener, Option<Arc<Tls>>),
    /// A file.
    #[cfg(unix)]
    Unix(tokio::net::UnixListener, PathBuf),
}

impl Listener {
    /// Opens the sockets that `args` name, at least one. Another address than a loopback one is open to other machines:
    /// it wants a key, or the word that it shall be so. With `tls` connections to addresses are encrypted; those to files
    /// never leave the machine.
    ///
    /// # Errors
    /// An address cannot be had, or needs a key.
    pub async fn bind(args: &Args, has_keys: bool, tls: Option<&Arc<Tls>>) -> Result<Vec<Listener>> {
        let may_be_open = has_keys || args.insecure_no_auth;
        let (mut listeners, mut port) = (Vec::new(), args.port);
        for host in &args.host {
            let listener = match host.ends_with(".sock") {
                true => unix(host)?,
                false => Listener::Tcp(tcp(host, port, may_be_open).await?, tls.cloned()),
            };
            // Where any port will do, it is the same one for all addresses.
            match &listener {
                Listener::Tcp(l, _) => port = l.local_addr()?.port(),
                #[cfg(unix)]
                Listener::Unix(..) => {}
            }
            listeners.push(listener);
        }
        Ok(listeners)
    }

    /// URL of the listener.
    pub fn url(&self) -> String {
        match self {
            Listener::Tcp(l, tls) => {
                let scheme = if tls.is_some() { "https" } else { "http" };
                match l.local_addr() {
                    Ok(address) => format!("{scheme}://{address}"),
                    Err(_) => format!("{scheme}://?"),
                }
            }
            #[cfg(unix)]
            Listener::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// True if only this machine reaches it.
    pub fn is_local(&self) -> bool {
        match self {
            Listener::Tcp(l, _) => l.local_addr().is_ok_and(|a| is_loopback(a.ip())),
            #[cfg(unix)]
            Listener::Unix(..) => true,
        }
    }

    /// The next connection.
    ///
    /// # Errors
    /// The client is gone already, or the system has no descriptors left.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Stream>>> {
        match self {
            Listener::Tcp(l, tls) => l.poll_accept(cx).map(|accepted| {
                let (stream, _) = accepted?;
                // Tokens are sent as they come, not collected.
                stream.set_nodelay(true)?;
                let stream: Box<dyn Stream> = Box::new(stream);
                Ok(match tls {
                    Some(tls) => tls.secure(stream),
                    None => stream,
                })
            }),
            #[cfg(unix)]
            Listener::Unix(l, _) => l.poll_accept(cx).map(|accepted| Ok(Box::new(accepted?.0) as Box<dyn Stream>)),
        }
    }
}

async fn tcp(host: &str, port: u16, may_be_open: bool) -> Result<TcpListener> {
    let context = || format!("cannot listen on '{host}' port {port}");
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (plain, port).to_socket_addrs().with_context(context)?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    if !may_be_open && addresses.iter().any(|a| !is_loopback(a.ip())) {
        bail!(
            "--host {host} lets other machines in: give --api-key-file (or RSERVE_API_KEY), or --insecure-no-auth if all may ask"
        );
    }
    TcpListener::bind(&addresses[..]).await.with_context(context)
}

#[cfg(unix)]
impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Somebody may have taken it away already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V6(v6) => v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
        IpAddr::V4(v4) => v4.is_loopback(),
    }
}

#[cfg(unix)]
fn unix(path: &str) -> Result<Listener> {
    let path = PathBuf::from(path);
    let mut listener = tokio::net::UnixListener::bind(&path);
    if listener.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) && is_left_behind(&path) {
        std::fs::remove_file(&path).with_context(|| format!("cannot remove '{}'", path.display()))?;
        listener = tokio::net::UnixListener::bind(&path);
    }
    let listener = listener.with_context(|| {
        format!(
            "cannot listen on '{}': another server runs there, the file is no socket, or the path has more than about 100 characters",
            path.display()
        )
    })?;
    Ok(Listener::Unix(listener, path))
}

/// True of the socket of a server that was killed: nobody listens there any more.
#[cfg(unix)]
fn is_left_behind(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    let connected = std::os::unix::net::UnixStream::connect(path);
    is_socket && connected.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(not(unix))]
fn unix(path: &str) -> Result<Listener> {
    bail!("--host {path}: this system has no Unix sockets")
}
