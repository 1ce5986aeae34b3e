//! Requests have factors of adapters of their own: a text is the one of a server that was started with them, whatever runs
//! beside it and whatever is in the cache.

use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};
use trine_testkit::testdata;

use crate::client::{ask, get, post};
use crate::local::{shared, start};

/// The path of an adapter.
fn path(name: &str) -> String {
    testdata(&format!("adapters/{name}")).to_str().expect("a path").to_owned()
}

/// Adapters with their factors as the command line takes them.
fn scaled(first: f32, second: f32) -> String {
    format!("{}:{first},{}:{second}", path("lora-f32.gguf"), path("lora-mixed.gguf"))
}

fn body(i: usize) -> Value {
    let prompt = ["The game of chess", "The game of chess is", "In the year 1900"][i % 3];
    json!({"prompt": prompt, "n_predict": 24, "temperature": 0.7, "seed": 5 + i, "n_probs": 3})
}

fn with(body: &Value, lora: Value) -> Value {
    let mut body = body.clone();
    body["lora"] = lora;
    body
}

/// The answers to requests that are sent at the same time.
fn together(to: SocketAddr, bodies: &[Value]) -> Vec<Value> {
    thread::scope(|s| {
        let threads: Vec<_> = bodies.iter().map(|body| s.spawn(move || ask(to, "/completion", body))).collect();
        threads.into_iter().map(|t| t.join().expect("an answer")).collect()
    })
}

/// The text of an answer and its probabilities.
fn said(answer: &Value) -> Value {
    json!([answer["content"], answer["completion_probabilities"], answer["tokens_predicted"]])
}

#[test]
fn a_request_s_factors_are_those_of_a_server_that_was_started_with_them() {
    let pairs = [(0.5, 1.0), (0.0, 0.0), (0.0, 2.0), (-1.0, 0.25)];
    let lora = |(first, second): (f32, f32)| match first == 0.0 {
        true if second == 0.0 => json!([]),
        true => json!([{"id": 1, "scale": second}]),
        false => json!([{"id": 1, "scale": second}, {"id": 0, "scale": first}]),
    };
    let expected: Vec<Vec<Value>> = pairs
        .iter()
        .map(|&(first, second)| {
            let server = start(&["--lora-scaled", &scaled(first, second)]);
            (0..3).map(|i| said(&ask(server.to, "/completion", &body(i)))).collect()
        })
        .collect();
    for i in 0..3 {
        let mut texts: Vec<&Value> = expected.iter().map(|of_pair| &of_pair[i]).collect();
        texts.dedup();
        assert_eq!(texts.len(), pairs.len(), "the factors change nothing");
    }

    let server = start(&["--lora-scaled", &scaled(0.5, 1.0), "--parallel", "8"]);
    let wanted = (0..24).map(|i| (i % 4, i % 3, i % 5 == 0));
    let bodies: Vec<Value> = wanted
        .clone()
        .map(|(pair, text, bare)| match pair == 0 && bare {
            // the factors of the command line
            true => body(text),
            false => with(&body(text), lora(pairs[pair])),
        })
        .collect();
    for _ in 0..2 {
        let answers = together(server.to, &bodies);
        for ((pair, text, bare), answer) in wanted.clone().zip(answers) {
            assert_eq!(said(&answer), expected[pair][text], "{pair} {text} {bare}");
            // those of the command line are not told
            let told = &answer["trine"]["lora"];
            match pair {
                0 => assert!(told.is_null(), "{told}"),
                _ => assert_eq!(told[1], json!({"id": 1, "scale": pairs[pair].1})),
            }
        }
    }
}

#[test]
fn vectors_have_factors_too() {
    let vector = |to, lora: Option<Value>| {
        let mut body = json!({"input": "The game of chess"});
        lora.into_iter().for_each(|lora| body["lora"] = lora);
        ask(to, "/v1/embeddings", &body)["data"].clone()
    };
    let (server, other) = (start(&["--lora-scaled", &scaled(0.5, 1.0)]), start(&["--lora-scaled", &scaled(2.0, 0.0)]));
    let (to, other) = (server.to, vector(other.to, None));
    assert_eq!(vector(to, Some(json!([{"id": 0, "scale": 2}]))), other);
    assert_ne!(vector(to, None), other);
}

#[test]
fn a_place_that_is_saved_keeps_its_factors() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&[
        "--lora-scaled",
        &scaled(0.5, 1.0),
        "--slot-save-path",
        dir.path().to_str().expect("a path"),
        "--parallel",
        "1",
    ]);
    let to = server.to;
    let lora = json!([{"id": 0, "scale": 2}]);
    let first = ask(to, "/completion", &with(&body(0), lora.clone()));
    ask(to, "/slots/0?action=save", &json!({"filename": "a"}));
    // other factors do not find what was evaluated with these
    assert_eq!(ask(to, "/completion", &body(0))["timings"]["cache_n"], 0);
    let refused = post(to, "/slots/0?action=restore", &json!({"filename": "a"}));
    assert_eq!(refused.status, 400, "{}", refused.text());
    ask(to, "/slots/0?action=restore", &json!({"filename": "a", "lora": lora}));
    let again = ask(to, "/completion", &with(&body(0), lora));
    assert_eq!(said(&again), said(&first));
    assert!(again["timings"]["cache_n"].as_u64() > Some(0), "{again}");
}

#[test]
fn adapters_are_listed_and_others_refused() {
    let server = start(&["--lora-scaled", &scaled(0.5, 1.0)]);
    let to = server.to;
    let listed = get(to, "/lora-adapters").json();
    let one = |id: usize, path: &str, scale: f64| json!({"id": id, "path": path, "scale": scale, "task_name": "", "prompt_prefix": ""});
    assert_eq!(listed, json!([one(0, "lora-f32.gguf", 0.5), one(1, "lora-mixed.gguf", 1.0)]));
    assert_eq!(get(shared(), "/lora-adapters").json(), json!([]));
    let changed = post(to, "/lora-adapters", &json!([{"id": 0, "scale": 0}]));
    assert_eq!(changed.status, 501, "{}", changed.text());
    for (lora, why) in [
        (json!([{"id": 2, "scale": 1}]), "there is no adapter 2; the last one is 1"),
        (json!([{"id": 0, "scale": 1}, {"id": 0, "scale": 1}]), "twice"),
        (json!([{"id": 0}]), "'id' and 'scale'"),
        (json!([{"id": -1, "scale": 1}]), "id"),
        (json!([{"id": 0, "scale": 1e39}]), "too large"),
        (json!([7]), "'id' and 'scale'"),
        (json!({"id": 0, "scale": 1}), "an array"),
    ] {
        let refused = post(to, "/completion", &with(&body(0), lora.clone()));
        let text = refused.text();
        assert!(refused.status == 400 && text.contains(why), "{lora}: {text}");
    }
    let refused = post(shared(), "/completion", &with(&body(0), json!([{"id": 0, "scale": 1}])));
    assert!(refused.status == 400 && refused.text().contains("--lora"), "{}", refused.text());
}
