//! TLS with a certificate of an authority of our own.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use trine_hub::Hub;
use trine_testkit::hub::Hub as Server;
use trine_testkit::{TempDir, testdata};

use super::kit::*;

/// A second address of a hub, with TLS; its bytes come from there too.
fn with_tls(server: Arc<Server>) -> String {
    let certificate = CertificateDer::from_pem_file(testdata("hub/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(testdata("hub/server.key")).unwrap();
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    server.manners().cdn = Some(address.clone());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (server, connection) = (server.clone(), ServerConnection::new(config.clone()).unwrap());
            thread::spawn(move || server.serve(StreamOwned::new(connection, stream)));
        }
    });
    address
}

#[test]
fn certificates_of_a_file_are_believed_and_others_are_not() {
    let bytes = bytes(100_000, 1);
    let server = Arc::new(Server::new([("m-Q4_K_M.gguf", bytes.clone())]));
    let mut settings = settings(&with_tls(server));
    let folder = TempDir::new().unwrap();
    let told =
        Hub::new(places(&folder), settings.clone()).unwrap().fetch(&wanted("user/repo"), &()).unwrap_err().to_string();
    assert!(told.contains("certificate") && told.contains("SSL_CERT_FILE"), "{told}");
    settings.certificates = Some(testdata("hub/ca.pem"));
    let path = Hub::new(places(&folder), settings.clone()).unwrap().fetch(&wanted("user/repo"), &()).unwrap();
    assert_eq!(fs::read(path).unwrap(), bytes);
    settings.certificates = Some(testdata("hub/README.md"));
    assert!(Hub::new(places(&folder), settings).is_err());
}

/// Whoever is sent from a hub with TLS to a host without does not go there.
#[test]
fn encryption_is_not_given_up_on_the_way() {
    let server = Arc::new(Server::new([("m-Q4_K_M.gguf", bytes(1000, 1))]));
    let mut settings = settings(&with_tls(server.clone()));
    server.manners().cdn = Some(server.endpoint.clone());
    settings.certificates = Some(testdata("hub/ca.pem"));
    let folder = TempDir::new().unwrap();
    let told = Hub::new(places(&folder), settings).unwrap().fetch(&wanted("user/repo"), &()).unwrap_err().to_string();
    assert!(told.contains("leads from https to an address without encryption"), "{told}");
}
