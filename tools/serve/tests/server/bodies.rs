//! Memory of bodies that are read.

use serde_json::json;

use crate::client::{answer, ask, open, post, raw, request};
use crate::local::start;

/// A body of half a megabyte that would be fifty times as large in pieces.
fn of_objects() -> Vec<u8> {
    format!("{{\"content\":\"a\",\"x\":[{}0]}}", "{\"\":0},".repeat(70_000)).into_bytes()
}

#[test]
fn a_body_is_counted_before_it_is_in_pieces() {
    let local = start(&["--max-bodies", "16M"]);
    for path in ["/tokenize", "/v1/completions", "/v1/embeddings"] {
        let error = raw(local.to, &request("POST", path, &[], &of_objects())).error(413);
        assert!(error["message"].as_str().expect("a text").contains("--max-bodies"), "{error}");
    }
    ask(local.to, "/tokenize", &json!({"content": "a ".repeat(250_000)}));
    let enough = start(&[]);
    assert_eq!(raw(enough.to, &request("POST", "/tokenize", &[], &of_objects())).status, 200);
}

/// Large bodies together have a limit, others do not wait for them, and when they are gone there is room again.
#[test]
fn large_bodies_wait_for_one_another() {
    let local = start(&["--max-bodies", "16M", "--queue-timeout", "1"]);
    let to = local.to;
    let large = json!({"content": "a ".repeat(250_000)}).to_string();
    let head = request("POST", "/tokenize", &[], large.as_bytes());
    let coming = |said: usize, sent: usize| {
        let head = String::from_utf8_lossy(&head[..head.len() - large.len()]).into_owned();
        let mut bytes = head.replace(&large.len().to_string(), &said.to_string()).into_bytes();
        bytes.extend_from_slice(&large.as_bytes()[..sent]);
        open(to, &bytes)
    };
    let status = || raw(to, &head).status;
    // Who announces a large body and sends nothing takes no room.
    let announced: Vec<_> = (0..9).map(|_| coming(4_000_000, 0)).collect();
    assert!((0..20).all(|_| status() == 200));
    // Nobody sends the rest of it.
    let on_its_way = coming(4_000_000, 200_000);
    assert!((0..1000).any(|_| status() == 503));
    assert_eq!(post(to, "/tokenize", &json!({"content": "a"})).status, 200);
    drop(on_its_way);
    assert!((0..1000).any(|_| status() == 200));
    drop(announced);
    // Its silence ends it, too.
    let silent = coming(4_000_000, 200_000);
    let error = answer(silent).error(408);
    assert!(error["message"].as_str().expect("a text").contains("came for 5 s"), "{error}");
    assert_eq!(status(), 200);
}
