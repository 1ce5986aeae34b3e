//! Tells systemd what the server does: the protocol of `sd_notify(3)`, one datagram to the socket in `NOTIFY_SOCKET`.

/// Requests are welcome.
pub const READY: &str = "READY=1";
/// The server is about to end.
pub const STOPPING: &str = "STOPPING=1";

/// Tells `state` to whoever watches the service. Without a watcher, or when it does not listen, nothing happens: the
/// server serves either way.
pub fn notify(state: &str) {
    #[cfg(unix)]
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(&path, state);
    }
    #[cfg(not(unix))]
    let _ = state;
}

#[cfg(unix)]
fn send(path: &std::ffi::OsStr, state: &str) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let socket = UnixDatagram::unbound()?;
    // A name that begins with @ is no file: Linux keeps such names by themselves.
    let address = match path.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name)?
        }
        _ => SocketAddr::from_pathname(path)?,
    };
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
