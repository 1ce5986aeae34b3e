//! `trine --probe URL`: asks a server whether it is ready, for containers in which there is nothing else to ask with.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How long the server may take for each step.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most bytes of an answer that are looked at: its first line is in them.
const MOST: u64 = 512;

/// Asks for `url`.
///
/// # Errors
/// It is no address of a server without TLS; there is no answer, or one that does not say 200.
pub fn probe(url: &str) -> Result<()> {
    let wrong = || format!("'{url}' is no address: give http://HOST:PORT/PATH, such as http://127.0.0.1:8080/health");
    let rest = url.strip_prefix("http://").with_context(wrong)?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/health" } else { path };
    if host.is_empty() || !path.bytes().all(|b| b.is_ascii_graphic()) {
        bail!(wrong());
    }
    let with_port = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let address = with_port.to_socket_addrs().with_context(wrong)?.next().with_context(wrong)?;
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // In one piece: a server that answers after the first would close the connection before the rest.
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().with_context(|| format!("{url} does not answer"))?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).unwrap_or("nothing");
    match status {
        "200" => Ok(()),
        other => bail!("{url} answers {other}, not 200"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The finding about a server that answers with `answer`.
    fn asked(answer: &'static str) -> (Result<()>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 1024];
            let n = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request[..n].to_vec()).unwrap()
        });
        (probe(&format!("http://{address}/health")), server.join().unwrap())
    }

    #[test]
    fn a_server_is_ready_when_it_says_200() {
        let (found, request) = asked("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        found.unwrap();
        assert!(request.starts_with("GET /health HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        for (answer, what) in
            [("HTTP/1.1 503 Service Unavailable\r\n\r\n", "503"), ("", "nothing"), ("200 200", "nothing")]
        {
            let told = asked(answer).0.unwrap_err().to_string();
            assert!(told.ends_with(&format!("answers {what}, not 200")), "{told}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_by_name() {
        for url in ["", "127.0.0.1:8080", "https://127.0.0.1/", "http://", "http:///health", "http://127.0.0.1:1/a b"] {
            let told = probe(url).unwrap_err().to_string();
            assert!(told.contains("is no address"), "{url}: {told}");
        }
        let told = probe("http://127.0.0.1:1/health").unwrap_err().to_string();
        assert!(told.ends_with("does not answer"), "{told}");
    }
}
