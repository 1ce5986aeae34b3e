//! Keys with names and limits, and a file of them that is read again.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Response, open, raw, request};
use crate::local::{Local, start, start_folder};
use crate::program::{Running, program, under_nohup};

fn keys(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("keys.txt");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("rights");
    path
}

fn with(to: std::net::SocketAddr, key: &str, path: &str, body: &Value) -> Response {
    let key = format!("Bearer {key}");
    let method = if body.is_null() { "GET" } else { "POST" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    raw(to, &request(method, path, &[("authorization", &key)], body.as_bytes()))
}

fn body(tokens: usize) -> Value {
    json!({"prompt": "The game", "max_tokens": tokens, "ignore_eos": true, "seed": 1})
}

/// A server whose keys these are.
fn keyed(text: &str, more: &[&str]) -> Local {
    let folder = trine_testkit::folder();
    let path = keys(folder.path(), text);
    start(&[&["--api-key-file", path.to_str().expect("a path")][..], more].concat())
}

/// A request for more text than a connection holds that nobody reads.
fn streamed(key: &str) -> Vec<u8> {
    let body = json!({"prompt": "The", "ignore_eos": true, "max_tokens": 500, "n_probs": 100, "stream": true});
    let key = format!("Bearer {key}");
    request("POST", "/v1/completions", &[("authorization", &key)], body.to_string().as_bytes())
}

/// A text of a client that reads nothing, which holds all places.
fn endless(local: &Local, key: &str) -> std::net::TcpStream {
    let stream = open(local.to, &streamed(key));
    while with(local.to, "plain", "/slots?fail_on_no_slot=1", &Value::Null).status == 200 {
        thread::sleep(Duration::from_millis(1));
    }
    stream
}

#[test]
fn limits_of_keys() {
    let text = format!(
        "plain\nalice: of-alice concurrent=1\nbob: {} tokens-per-minute=20\ncarol: of-carol models=another\ndora: of-dora models=m\n",
        hash("of-bob")
    );
    let local = keyed(&text, &["--alias", "m", "--parallel", "1", "--stall-timeout", "100"]);
    let to = local.to;
    let asked = |key: &str, tokens: usize| with(to, key, "/v1/completions", &body(tokens));
    for key in ["alice", "of-alicf", &hash("of-bob"), "concurrent=1", "#", ""] {
        asked(key, 1).error(401);
    }
    // One request at a time: the second is refused while the first is not read, on every API.
    let unread = endless(&local, "of-alice");
    let refused = asked("of-alice", 1);
    assert!(refused.error(429)["message"].as_str().is_some_and(|m| m.contains("1 requests")));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let chat = json!({"messages": [{"role": "user", "content": "x"}]});
    assert!(with(to, "of-alice", "/api/chat", &chat).error_of(429).is_string());
    with(to, "of-alice", "/v1/embeddings", &json!({"input": "x"})).error(429);
    assert_eq!(with(to, "of-alice", "/v1/models", &Value::Null).status, 200);
    drop(unread);
    while asked("of-alice", 1).status == 429 {
        thread::sleep(Duration::from_millis(5));
    }
    // Tokens a minute: a text may go beyond it, the next one waits.
    assert_eq!(asked("of-bob", 60).status, 200);
    let refused = asked("of-bob", 1);
    assert!(refused.error(429)["message"].as_str().is_some_and(|m| m.contains("20 tokens a minute")));
    assert!(refused.header("retry-after").and_then(|s| s.parse::<u64>().ok()).is_some_and(|s| (60..=120).contains(&s)));
    assert_eq!(asked("plain", 1).status, 200);
    // Models.
    assert_eq!(asked("of-dora", 1).status, 200);
    for path in ["/v1/completions", "/tokenize", "/v1/embeddings"] {
        let error = with(to, "of-carol", path, &json!({"prompt": "x", "input": "x", "content": "x"})).error(403);
        assert_eq!(error["type"], "permission_error");
    }
    assert!(with(to, "of-carol", "/api/show", &json!({"model": "m"})).error_of(403).is_string());
}

fn hash(key: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(key);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[test]
fn a_higher_priority_goes_first() {
    let local = keyed(
        "plain\nlow: of-low priority=-1\nhigh: of-high priority=1\n",
        &["--parallel", "1", "--stall-timeout", "100"],
    );
    let engine = local.server.as_ref().and_then(|server| server.engine()).expect("an engine");
    let place = endless(&local, "plain");
    let wait_for = |waiting| {
        while engine.waiting() < waiting {
            thread::sleep(Duration::from_millis(1));
        }
    };
    // Nobody reads the low one before the high one has its answer: had it the place first, it would keep it until it is
    // given up as stalled.
    let mut low = open(local.to, &streamed("of-low"));
    wait_for(1);
    thread::scope(|s| {
        let high = s.spawn(|| with(local.to, "of-high", "/v1/completions", &body(1)).status);
        wait_for(2);
        drop(place);
        assert_eq!(high.join().expect("an answer"), 200);
    });
    let mut text = String::new();
    low.read_to_string(&mut text).expect("an answer");
    assert!(text.contains("data: [DONE]"), "{text}");
}

#[test]
fn a_key_sees_its_models_alone() {
    let folder = trine_testkit::folder();
    for name in ["a", "b"] {
        std::os::unix::fs::symlink(trine_testkit::trilm(), folder.path().join(format!("{name}.gguf"))).expect("a link");
    }
    let path = keys(folder.path(), "plain\nerna: of-erna models=b\n");
    let local = start_folder(folder.path(), &["--api-key-file", path.to_str().expect("a path")]);
    let to = local.to;
    let ids = |key: &str| -> Vec<Value> {
        let list = with(to, key, "/v1/models", &Value::Null).json()["data"].clone();
        list.as_array().expect("a list").iter().map(|model| model["id"].clone()).collect()
    };
    assert_eq!((ids("plain"), ids("of-erna")), (vec![json!("a"), json!("b")], vec![json!("b")]));
    let asked =
        |model: &str| with(to, "of-erna", "/v1/completions", &json!({"model": model, "prompt": "x", "max_tokens": 1}));
    assert_eq!(asked("b").status, 200);
    asked("a").error(403);
    assert_eq!(
        with(to, "plain", "/v1/completions", &json!({"model": "a", "prompt": "x", "max_tokens": 1})).status,
        200
    );
    let names = |path: &str| with(to, "of-erna", path, &Value::Null).json()["models"].as_array().map(Vec::len);
    assert_eq!((names("/api/tags"), names("/api/ps")), (Some(1), Some(1)));
    with(to, "of-erna", "/props?model=a", &Value::Null).error(403);
    // Nor does it unload what it may not ask for.
    let unload = with(to, "of-erna", "/api/generate", &json!({"model": "a", "keep_alive": 0}));
    assert!(unload.error_of(403).is_string());
}

/// The file is read again on SIGHUP, keys that are gone are, and one that makes no sense changes nothing. No line of the
/// log has a key.
#[test]
fn the_file_is_read_again() {
    read_again(program());
}

/// A program that nohup has started hears that too.
#[test]
fn the_file_is_read_again_under_nohup() {
    read_again(under_nohup());
}

fn read_again(mut command: Command) {
    let folder = trine_testkit::folder();
    let path = keys(folder.path(), "alice: canary-a\n");
    command.env("RSERVE_DRAIN_DELAY", "0").arg("--api-key-file").arg(&path);
    let (mut server, mut lines) = Running::watched(&mut command);
    let to = server.to;
    let status = |key: &str| with(to, key, "/v1/completions", &body(1)).status;
    assert_eq!((status("canary-a"), status("canary-b")), (200, 401));
    let line = lines.until("/v1/completions 200");
    assert!(line.ends_with(" alice"), "{line}");
    keys(folder.path(), &format!("bob: {}\n", hash("canary-b")));
    server.signal("-HUP");
    lines.until("the keys were read again, 1 are known");
    assert_eq!((status("canary-a"), status("canary-b")), (401, 200));
    let line = lines.until("/v1/completions 200");
    assert!(line.ends_with(" bob"), "{line}");
    for wrong in ["bob: canary-c speed=1\n", "# nobody\n"] {
        keys(folder.path(), wrong);
        server.signal("-HUP");
        lines.until("error: the keys stay as they were");
        assert_eq!((status("canary-c"), status("canary-b")), (401, 200));
    }
    assert_eq!(server.terminate(), 0);
    assert!(!lines.log.concat().contains("canary"), "{:?}", lines.log);
}
