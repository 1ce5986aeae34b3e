//! TLS with certificates of authorities of our own.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use trine_testkit::testdata;

use crate::client::request;
use crate::program::{Running, program};

/// Copies a certificate and its key into a folder; their paths.
fn files(folder: &Path, name: &str) -> [PathBuf; 2] {
    let to = ["cert.pem", "key.pem"].map(|file| folder.join(file));
    for (to, ending) in to.iter().zip(["pem", "key"]) {
        fs::copy(testdata(&format!("hub/{name}.{ending}")), to).expect("a file");
        fs::set_permissions(to, fs::Permissions::from_mode(0o600)).expect("rights");
    }
    to
}

/// The answer of a server to a request over TLS, from a client that knows one authority.
fn ask(to: SocketAddr, authority: &str, request: &[u8]) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(testdata(&format!("hub/{authority}.pem"))).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let connection = ClientConnection::new(config, "localhost".try_into().expect("a name")).expect("a client");
    let stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(request)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Requests and streams are encrypted, and a certificate that is changed is taken on SIGHUP, unless it makes no sense.
#[test]
fn connections_are_encrypted_and_the_certificate_is_read_again() {
    let folder = trine_testkit::folder();
    let [cert, key] = files(folder.path(), "server");
    let mut command = program();
    command.env("RSERVE_DRAIN_DELAY", "0").arg("--ssl-cert-file").arg(&cert).arg("--ssl-key-file").arg(&key);
    let (mut server, mut lines) = Running::watched(&mut command);
    let to = server.to;
    let body = json!({"prompt": "The game", "max_tokens": 4, "seed": 1, "stream": true}).to_string();
    let post = request("POST", "/v1/completions", &[], body.as_bytes());
    let health = request("GET", "/health", &[], b"");
    assert!(ask(to, "ca", &post).expect("an answer").contains("data: [DONE]"));
    // Who knows another authority, or speaks no TLS, is told so, and the server goes on.
    let stranger = ask(to, "other-ca", &health).expect_err("a stranger");
    assert!(stranger.to_string().contains("certificate"), "{stranger}");
    let mut plain = TcpStream::connect(to).expect("a connection");
    plain.write_all(&health).expect("a request");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    assert!(ask(to, "ca", &health).expect("an answer").starts_with("HTTP/1.1 200 "));

    files(folder.path(), "other");
    server.signal("-HUP");
    lines.until("the certificate was read again");
    assert!(ask(to, "other-ca", &health).expect("an answer").starts_with("HTTP/1.1 200 "));
    assert!(ask(to, "ca", &health).is_err());
    // A key of another certificate.
    fs::copy(testdata("hub/server.key"), &key).expect("a file");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("rights");
    server.signal("-HUP");
    lines.until("error: the certificate stays as it was");
    assert!(ask(to, "other-ca", &health).expect("an answer").starts_with("HTTP/1.1 200 "));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn files_that_are_none_are_refused() {
    let folder = trine_testkit::folder();
    let fails = |[cert, key]: [&Path; 2], why: &str| {
        let mut command = program();
        command.env("RSERVE_MODEL", trine_testkit::trilm()).env("RSERVE_PORT", "0");
        let command = command.arg("--ssl-cert-file").arg(cert).arg("--ssl-key-file").arg(key);
        let Output { status, stderr, .. } = command.output().expect("an end");
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(1), "{stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(why), "{stderr}");
    };
    let [cert, key] = files(folder.path(), "server");
    fails([&folder.path().join("none"), &key], "none");
    fails([&key, &key], "has no certificate in PEM");
    fails([&cert, &cert], "has no private key in PEM");
    let other = folder.path().join("other.key");
    fs::copy(testdata("hub/other.key"), &other).expect("a file");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).expect("rights");
    fails([&cert, &other], "chmod 600");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).expect("rights");
    fails([&cert, &other], "do not fit together");
    let mut command = program();
    let Output { stderr, .. } =
        command.env("RSERVE_MODEL", "x").arg("--ssl-cert-file").arg(&cert).output().expect("an end");
    assert!(String::from_utf8_lossy(&stderr).contains("--ssl-key-file"));
}
