//! Requests with which a client might break a server.

use serde_json::{Value, json};

use crate::client::{Response, ask, get, post, raw, request};
use crate::local::{shared, start};

fn body(bytes: &[u8]) -> Response {
    raw(shared(), &request("POST", "/v1/completions", &[], bytes))
}

#[test]
fn bodies_that_are_none() {
    let deep = "[".repeat(1_000_000);
    for bytes in [
        &b""[..],
        b"{",
        b"{\"prompt\": \"The",
        b"[]",
        b"\"text\"",
        b"nonsense",
        b"{\"prompt\": \"\xff\xfe\"}",
        b"{\"prompt\": \"x\", \"temperature\": NaN}",
        b"{\"prompt\": \"x\", \"temperature\": 1e999}",
        b"{\"prompt\": \"x\"} more",
        deep.as_bytes(),
    ] {
        let error = body(bytes).error(400);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty() && message.len() < 200, "{message}");
    }
    // of equal names the last counts
    let twice = body(b"{\"prompt\": 1, \"prompt\": \"The\", \"max_tokens\": 1}");
    assert_eq!(twice.status, 200);
}

#[test]
fn prompts_that_are_none() {
    let to = shared();
    let n = 4096;
    for prompt in [
        json!([]),
        json!([[]]),
        json!([n]),
        json!([-1]),
        json!([1.5]),
        json!([null]),
        json!({"x": 1}),
        json!(true),
        json!(vec!["x"; 65]),
        Value::Null,
    ] {
        post(to, "/v1/completions", &json!({"prompt": prompt, "max_tokens": 1})).error(400);
    }
    let mixed = json!({"prompt": ["The", 5, 6, "game"], "max_tokens": 1});
    assert_eq!(ask(to, "/v1/completions", &mixed)["choices"].as_array().map(Vec::len), Some(1));
    for messages in [
        json!([]),
        json!("x"),
        json!([1]),
        json!([{"content": "x"}]),
        json!([{"role": "user"}]),
        json!([{"role": "bird", "content": "x"}]),
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/"}}]}]),
        json!([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]),
    ] {
        post(to, "/v1/chat/completions", &json!({"messages": messages, "max_tokens": 1})).error(400);
    }
}

#[test]
fn numbers_of_all_kinds() {
    let to = shared();
    let integers =
        ["n_predict", "n", "seed", "top_k", "n_probs", "n_discard", "n_keep", "id_slot", "repeat_last_n", "bits"];
    for name in integers {
        for value in ["-9223372036854775808", "-2147483649", "9223372036854775808", "1e308", "\"1\"", "[]", "{}", "0.5"]
        {
            let text = format!("{{\"prompt\": \"The\", \"max_tokens\": 1, \"{name}\": {value}}}");
            let response = raw(to, &request("POST", "/completion", &[], text.as_bytes()));
            assert!(response.error(400)["message"].as_str().is_some_and(|m| m.contains(name)), "{name} {value}");
        }
    }
    let biases = [json!([[1, "x"]]), json!({"1": {}}), json!([[1, 1e308]]), json!([[4096, 1]]), json!([[4096, false]])];
    for bias in biases {
        post(to, "/completion", &json!({"prompt": "The", "logit_bias": bias})).error(400);
    }
    let ban: Vec<Value> = (0..4096).filter(|i| *i != 77).map(|i| json!([i, false])).collect();
    let many = post(to, "/completion", &json!({"prompt": "The", "n_predict": 1, "logit_bias": ban}));
    assert!([200, 400].contains(&many.status));
}

#[test]
fn sizes() {
    let local = start(&["--max-body", "64K"]);
    let to = local.to;
    let fits = json!({"prompt": "x ".repeat(20_000)});
    assert_eq!(post(to, "/v1/completions", &fits).error(400)["type"], "exceed_context_size_error");
    let large = json!({"prompt": "x ".repeat(60_000)});
    post(to, "/v1/completions", &large).error(413);
    // chunks without an end
    let mut endless = b"POST /completion HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..20 {
        endless.extend_from_slice(b"2000\r\n");
        endless.extend_from_slice(&[b' '; 0x2000]);
        endless.extend_from_slice(b"\r\n");
    }
    raw(to, &endless).error(413);
    let header = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    assert_eq!(raw(to, header.as_bytes()).status, 431);
    let headers = "x: y\r\n".repeat(1000);
    let many = format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    assert_eq!(raw(to, many.as_bytes()).status, 431);
    assert_eq!(get(to, "/health").status, 200);
}

#[test]
fn a_text_of_four_million_letters() {
    let to = shared();
    for text in ["a".repeat(4_000_000), " ".repeat(4_000_000), "<|x|>".repeat(800_000)] {
        let error = post(to, "/completion", &json!({ "prompt": text })).error(400);
        assert_eq!(error["type"], "exceed_context_size_error");
    }
}
