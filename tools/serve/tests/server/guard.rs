//! Who is let in.

use std::time::Duration;

use clap::Parser;
use serde_json::json;
use trine_serve::args::Args;

use crate::client::{Response, get, raw, request};
use crate::local::{isolate, shared, start};

#[track_caller]
fn with(to: std::net::SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let body = if method == "POST" { "{\"content\": \"x\"}" } else { "" };
    raw(to, &request(method, path, headers, body.as_bytes()))
}

#[test]
fn every_answer_is_guarded() {
    for path in ["/", "/health", "/nowhere", "/v1/models"] {
        let response = get(shared(), path);
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(response.header("content-security-policy").is_some_and(|c| c.starts_with("default-src 'none'")));
        assert!(response.header("access-control-allow-origin").is_none());
        assert!(response.header("x-request-id").is_some());
    }
    let own = with(shared(), "GET", "/health", &[("x-request-id", "abc-1")]);
    assert_eq!(own.header("x-request-id"), Some("abc-1"));
}

#[test]
fn hosts() {
    let to = shared();
    for host in ["evil.example", "localhost.evil.example:80", "8.8.8.8"] {
        for path in ["/health", "/v1/models", "/", "/nowhere"] {
            assert_eq!(with(to, "GET", path, &[("host", host)]).status, 403, "{host} {path}");
        }
    }
    for host in ["localhost/v1/models?", "a@localhost", "localhost#x", ""] {
        assert_eq!(with(to, "GET", "/v1/models", &[("host", host)]).status, 400, "{host}");
    }
    assert_eq!(raw(to, b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n").status, 400);
    let absolute = raw(to, b"GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!(absolute.status, 403);
    let named = start(&["--allowed-hosts", "my.example"]);
    assert_eq!(with(named.to, "GET", "/health", &[("host", "My.Example:80")]).status, 200);
}

#[test]
fn keys() {
    let local = start(&["--api-key", "first,second"]);
    let to = local.to;
    for path in ["/health", "/livez", "/readyz", "/"] {
        assert_eq!(get(to, path).status, 200, "{path}");
    }
    let inside = ["/v1/models", "/props", "/slots", "/metrics", "/v1/moderations"];
    for path in inside {
        assert_eq!(get(to, path).error(401)["type"], "authentication_error");
    }
    for path in ["//v1/models", "/v1/../v1/models", "/%76%31/models", "/V1/models", "/v1/models/", "/health/../props"] {
        let status = get(to, path).status;
        assert!([400, 401, 404].contains(&status), "{path}: {status}");
    }
    for (name, value, status) in [
        ("authorization", "Bearer first", 200),
        ("authorization", "bearer second", 200),
        ("x-api-key", "second", 200),
        ("authorization", "Bearer ", 401),
        ("authorization", "Bearer firs", 401),
        ("authorization", "Bearer first,second", 401),
        ("authorization", "first", 401),
        ("x-api-key", "third", 401),
    ] {
        assert_eq!(with(to, "GET", "/v1/models", &[(name, value)]).status, status, "{value}");
        assert_eq!(with(to, "POST", "/tokenize", &[(name, value)]).status, status, "{value}");
    }
    // what one party has in the cache is nothing to the other
    let body = json!({"prompt": vec![9; 300], "max_tokens": 1}).to_string();
    let cached = |key: &str| {
        let bytes = request("POST", "/v1/completions", &[("x-api-key", key)], body.as_bytes());
        raw(to, &bytes).json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64()
    };
    assert_eq!(cached("first"), Some(0));
    assert_eq!(cached("second"), Some(0));
    assert!(cached("first") > Some(0));
}

#[test]
fn other_machines_need_a_key() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let model = trine_testkit::trilm();
    let refused = |more: &[&str]| {
        let own = ["rserve", "-m", model.to_str().expect("a path"), "--port", "0", "--log-format", "none"];
        let args = Args::try_parse_from(own.iter().chain(more)).expect("options");
        runtime.block_on(async {
            let server = trine_serve::http::Server::start(&args, isolate()).await;
            match server {
                Err(e) => Some(format!("{e:#}")),
                Ok(mut server) => {
                    server.ready().await.expect("a model");
                    server.drain(Duration::ZERO, Duration::ZERO).await;
                    None
                }
            }
        })
    };
    let error = refused(&["--host", "0.0.0.0"]).expect("a refusal");
    assert!(error.contains("--api-key-file") && error.contains("--insecure-no-auth"), "{error}");
    assert_eq!(refused(&["--host", "0.0.0.0", "--insecure-no-auth"]), None);
    assert_eq!(refused(&["--host", "0.0.0.0", "--api-key", "k"]), None);
    assert_eq!(refused(&["--host", "::1"]), None);
    let error = refused(&["--host", "127.0.0.1,0.0.0.0"]).expect("a refusal");
    assert!(error.contains("--host 0.0.0.0"), "{error}");
}

#[test]
fn several_addresses() {
    let local = start(&["--host", "127.0.0.1,::1,127.0.0.2"]);
    let server = local.server.as_ref().expect("a server");
    let urls = server.urls().iter().map(|url| {
        let address = url.strip_prefix("http://").expect("an address");
        address.parse::<std::net::SocketAddr>().expect("an address")
    });
    let addresses: Vec<_> = urls.collect();
    assert_eq!(addresses.len(), 3);
    assert!(addresses.iter().all(|a| a.port() == local.to.port()));
    for _ in 0..2 {
        for &to in &addresses {
            assert_eq!(get(to, "/health").status, 200, "{to}");
        }
    }
    // Each of them is a loopback address, so only local names are answered.
    assert_eq!(with(addresses[1], "GET", "/health", &[("host", "evil.example")]).status, 403);
}

#[test]
fn pages_of_other_origins() {
    let to = shared();
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
    ] {
        assert_eq!(with(to, "POST", "/tokenize", headers).status, 403, "{headers:?}");
    }
    for headers in [
        &[][..],
        &[("sec-fetch-site", "same-origin"), ("origin", "http://x")],
        &[("sec-fetch-site", "none")],
        &[("origin", "http://localhost")],
    ] {
        assert_eq!(with(to, "POST", "/tokenize", headers).status, 200, "{headers:?}");
    }
    assert_eq!(with(to, "OPTIONS", "/tokenize", &[("origin", "http://evil.example")]).status, 405);
    let local = start(&["--cors-origins", "http://good.example"]);
    let good = [("origin", "http://good.example"), ("sec-fetch-site", "cross-site")];
    let response = with(local.to, "POST", "/tokenize", &good);
    assert_eq!(response.status, 200);
    assert_eq!(response.header("access-control-allow-origin"), Some("http://good.example"));
    assert!(response.header("access-control-allow-credentials").is_none());
    assert_eq!(with(local.to, "OPTIONS", "/tokenize", &good).status, 200);
    assert_eq!(with(local.to, "POST", "/tokenize", &[("origin", "http://evil.example")]).status, 403);
}

#[test]
fn paths_methods_and_codings() {
    let to = shared();
    assert_eq!(get(to, "/nowhere").error(404)["message"], "File Not Found");
    get(to, "/v1/completions").error(405);
    with(to, "DELETE", "/health", &[]).error(405);
    for path in ["/v1/moderations", "/props", "/slots/0?action=save"] {
        assert_eq!(with(to, "POST", path, &[]).error(501)["type"], "not_supported_error");
    }
    with(to, "POST", "/tokenize", &[("content-encoding", "gzip")]).error(415);
    // a missing or odd type is no obstacle
    assert_eq!(with(to, "POST", "/tokenize", &[("content-type", "text/plain")]).status, 200);
    let page = get(to, "/app.js");
    let etag = page.header("etag").expect("a tag").to_owned();
    assert_eq!(with(to, "GET", "/app.js", &[("if-none-match", &etag)]).status, 304);
}
