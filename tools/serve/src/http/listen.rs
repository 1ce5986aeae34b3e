//! Where the server listens.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use tokio::net::TcpListener;

use crate::args::Args;

/// An open socket.
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// A file.
    #[cfg(unix)]
    Unix(tokio::net::UnixListener, PathBuf),
}

impl Listener {
    /// Opens the socket that `args` name. Another address than a loopback one is open to other machines: it wants a key,
    /// or the word that it shall be so.
    ///
    /// # Errors
    /// The address cannot be had, or needs a key.
    pub async fn bind(args: &Args, has_keys: bool) -> Result<Listener> {
        let (host, port) = (args.host.as_str(), args.port);
        if host.ends_with(".sock") {
            return unix(host);
        }
        let context = || format!("cannot listen on '{host}' port {port}");
        let plain = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = (plain, port).to_socket_addrs().with_context(context)?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let open = addresses.iter().any(|a| !is_loopback(a.ip()));
        if open && !has_keys && !args.insecure_no_auth {
            bail!(
                "--host {host} lets other machines in: give --api-key-file (or RSERVE_API_KEY), or --insecure-no-auth if all may ask"
            );
        }
        let listener = TcpListener::bind(&addresses[..])
            .await
            .with_context(context)?;
        Ok(Listener::Tcp(listener))
    }

    /// How clients write it.
    pub fn url(&self) -> String {
        match self {
            Listener::Tcp(l) => match l.local_addr() {
                Ok(address) => format!("http://{address}"),
                Err(_) => "http://?".to_owned(),
            },
            #[cfg(unix)]
            Listener::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        match self {
            Listener::Tcp(l) => l.local_addr().is_ok_and(|a| is_loopback(a.ip())),
            #[cfg(unix)]
            Listener::Unix(..) => true,
        }
    }
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
        IpAddr::V6(v6) => {
            v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
        IpAddr::V4(v4) => v4.is_loopback(),
    }
}

#[cfg(unix)]
fn unix(path: &str) -> Result<Listener> {
    let path = PathBuf::from(path);
    let listener = tokio::net::UnixListener::bind(&path);
    let listener = listener.with_context(|| {
        format!(
            "cannot listen on '{}': if no other server runs there, remove the file; a path has about 100 characters at most",
            path.display()
        )
    })?;
    Ok(Listener::Unix(listener, path))
}

#[cfg(not(unix))]
fn unix(path: &str) -> Result<Listener> {
    bail!("--host {path}: this system has no Unix sockets")
}
