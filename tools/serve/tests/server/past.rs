//! Requests that broke other servers.
//!
//! | what | where it is tested |
//! |---|---|
//! | CVE-2026-21869 (llama.cpp): a negative number writes out of bounds | `hostile::numbers_of_all_kinds` |
//! | CVE-2026-34756 (vLLM): a huge `n`; CVE-2024-8939: `best_of` | `shapes::wrong_values_are_refused_by_the_name_of_their_field` |
//! | CVE-2025-48956 (vLLM): a giant header | `hostile::sizes` |
//! | CVE-2025-59425 (vLLM): keys compared byte by byte | `http::keys` compares digests, all of them |
//! | CVE-2026-48746 (vLLM), CVE-2026-48710: a Host or a path that goes around the key | `guard::keys`, `guard::paths_methods_and_codings` |
//! | CVE-2024-8768 (vLLM): an empty prompt | `hostile::prompts_that_are_none` |
//! | CVE-2024-28224 (Ollama): DNS rebinding | `guard::hosts` |
//! | CVE-2024-12886 (Ollama): compressed bodies | `guard::paths_methods_and_codings` |
//! | any origin with credentials (llama.cpp) | `guard::pages_of_other_origins` |
//!
//! The others are below.

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{ask, get, open, post, raw, request};
use crate::local::{Local, shared, start};

/// The server still answers as it should.
#[track_caller]
fn still_serves(to: std::net::SocketAddr) {
    let body = json!({"prompt": "The", "max_tokens": 2, "seed": 1});
    assert_eq!(ask(to, "/v1/completions", &body)["usage"]["completion_tokens"], 2);
}

/// CVE-2025-48942, -48943, -48944 (vLLM) and a report to llama.cpp: schemas, patterns and functions that end the
/// engine, or that it never ends with.
#[test]
fn schemas_patterns_and_functions() {
    let to = shared();
    let deep = (0..50).fold(json!({"type": "null"}), |s, _| json!({"anyOf": [s, {"type": "string"}]}));
    let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    for (schema, status) in [
        (json!({"type": "string", "pattern": "^(a+)+b$"}), None),
        (json!({"type": "string", "pattern": "(x{1000}){1000}"}), None),
        (json!({"type": "string", "pattern": "a".repeat(1 << 20)}), Some(400)),
        (json!({"type": "string", "pattern": "(?=a)b"}), Some(400)),
        (json!({"type": "array", "minItems": 1_000_000_000}), None),
        (json!({"type": "something"}), Some(400)),
        (deep, None),
        (circle, None),
    ] {
        let name: String = schema.to_string().chars().take(60).collect();
        let body = json!({"prompt": "The", "max_tokens": 3, "json_schema": schema});
        let response = post(to, "/v1/completions", &body);
        let fits = status.map_or([200, 400].contains(&response.status), |s| s == response.status);
        assert!(fits, "{name}: {}", response.text());
    }
    let nested =
        format!("{{\"prompt\": \"x\", \"json_schema\": {}1{}}}", "{\"anyOf\": [".repeat(100_000), "]}".repeat(100_000));
    raw(to, &request("POST", "/v1/completions", &[], nested.as_bytes())).error(400);
    still_serves(to);
}

fn with_template(template: &str, more: &[&str]) -> Local {
    let folder = trine_testkit::folder();
    let path = folder.path().join("hostile.jinja");
    std::fs::write(&path, template).expect("a file");
    let own = ["--chat-template-file", path.to_str().expect("a path")];
    start(&[&own[..], more].concat())
}

/// CVE-2024-34359 (llama-cpp-python) and CVE-2026-5760 (SGLang): a template that runs code; and templates that take all
/// time or memory.
#[test]
fn templates() {
    for template in [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__['os'].system('true') }}",
        "{% for i in range(10000000) %}{% for j in range(10000000) %}x{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
    ] {
        let local = with_template(template, &[]);
        let body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1});
        let response = post(local.to, "/v1/chat/completions", &body);
        // An attribute that is not there is nothing, as everywhere in a template.
        assert!([200, 400].contains(&response.status), "{template}: {}", response.text());
        if template.contains("range") || template.contains("macro") {
            assert_eq!(response.status, 400, "{template}");
        }
        still_serves(local.to);
    }
}

/// CVE-2025-62426 and CVE-2025-61620 (vLLM): templates and their arguments in the request.
#[test]
fn templates_of_requests() {
    let to = shared();
    for (name, value) in [
        ("chat_template", json!("{{ 1 }}")),
        ("chat_template_kwargs", json!({"add_generation_prompt": true})),
        ("chat_template_kwargs", json!({"messages": "x".repeat(1 << 20)})),
    ] {
        let mut body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1});
        body[name] = value;
        let error = post(to, "/v1/chat/completions", &body).error(400);
        assert_eq!(error["param"], name);
    }
    // Names that are arguments of functions in other servers are variables here, which this template does not know.
    let mut body = json!({"messages": [{"role": "user", "content": "x"}]});
    let expected = ask(to, "/apply-template", &body);
    body["chat_template_kwargs"] = json!({"tokenize": true, "chat_template": "{{ 1 }}", "x": "y".repeat(1 << 20)});
    assert_eq!(ask(to, "/apply-template", &body), expected);
}

/// CVE-2025-46570 and CVE-2025-25183 (vLLM): how fast an answer comes tells what others asked; equal hashes of other
/// prompts.
#[test]
fn caches_of_others() {
    let local = start(&["--api-key", "one,two"]);
    let body = json!({"prompt": vec![11; 200], "max_tokens": 1}).to_string();
    let cached = |key: &str| {
        let key = format!("Bearer {key}");
        let bytes = request("POST", "/v1/completions", &[("authorization", &key)], body.as_bytes());
        let usage = raw(local.to, &bytes).json()["usage"].clone();
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
    };
    assert_eq!((cached("one"), cached("two")), (0, 0));
    assert!(cached("one") > 0 && cached("two") > 0);
}

/// CVE-2025-6242, CVE-2026-24779 (vLLM), CVE-2026-33626 (LMDeploy), CVE-2026-0599 (TGI): the server is made to open a
/// connection; CVE-2026-22773, CVE-2026-5497 (vLLM): media that grow when they are read.
#[test]
fn no_connection_goes_out() {
    let to = shared();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a listener");
    let url = format!("http://{}/x.png", listener.local_addr().expect("an address"));
    let chat = |content: Value| json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1});
    for part in [
        json!({"type": "image_url", "image_url": {"url": url}}),
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        json!({"type": "video_url", "video_url": {"url": url}}),
        json!({"type": "file", "file": {"file_id": "file:///etc/passwd"}}),
    ] {
        post(to, "/v1/chat/completions", &chat(json!([part]))).error(400);
    }
    for text in [format!("![x]({url})"), format!("<img src=\"{url}\">"), url.clone()] {
        assert_eq!(post(to, "/v1/chat/completions", &chat(text.into())).status, 200);
    }
    let schema = json!({"prompt": "x", "max_tokens": 1, "json_schema": {"$ref": url}});
    post(to, "/v1/completions", &schema).error(400);
    let tried = listener.accept().expect_err("no connection");
    assert_eq!(tried.kind(), ErrorKind::WouldBlock);
}

/// CVE-2024-37032 and others (Ollama): names of files in requests. Nothing is done for them.
#[test]
fn names_of_files() {
    let to = shared();
    for name in ["../x", "/etc/passwd", "a\0b", "con"] {
        for action in ["save", "restore", "erase"] {
            let path = format!("/slots/0?action={action}");
            post(to, &path, &json!({ "filename": name })).error(501);
        }
    }
    for path in ["/api/pull", "/api/create", "/api/push", "/api/blobs/sha256:0"] {
        assert!(post(to, path, &json!({"name": "../x"})).error_of(501).is_string());
    }
    get(to, "/..%2f..%2fetc/passwd").error(404);
}

/// Clients that send and read slowly, and many of them, while others are served.
#[test]
fn slow_clients() {
    let local = start(&["--max-queue", "64"]);
    let to = local.to;
    let mut slow: Vec<TcpStream> = Vec::new();
    for i in 0..200 {
        slow.push(match i % 3 {
            // A head that does not end, a body that does not, an answer that nobody reads.
            0 => open(to, b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nx-"),
            1 => open(to, b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{\"pro"),
            _ => open(to, b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        });
    }
    for _ in 0..8 {
        still_serves(to);
        for stream in &mut slow {
            // The server may have given up on it.
            let _ = stream.write_all(b"y");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(slow);
    still_serves(to);
}
