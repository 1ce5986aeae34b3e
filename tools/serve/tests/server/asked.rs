//! The cost that a request may have, and fields that are never ignored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use serde_json::{Value, json};
use trine::isolate::{Failure, Isolate, Job, Limits};

use crate::client::{ask, get, open, post, raw, request};
use crate::local::{isolate, shared, start, start_isolated};

/// A request with so many of everything that copies of it would fill the memory is refused before there are any.
#[test]
fn what_a_request_costs_is_counted_first() {
    let to = shared();
    let many = |n: usize| (0..n).map(|i| Value::from(format!("s{i}"))).collect::<Vec<_>>();
    for (name, value) in [
        ("stop", Value::from(many(200_000))),
        ("logit_bias", (0..200_000).map(|i| json!([i % 4096, 1])).collect()),
        ("logit_bias", (0..200_000).map(|i| json!([i % 4096, false])).collect()),
        ("logit_bias", json!([["a b c ".repeat(100_000), 1]])),
    ] {
        let prompts = vec!["a"; 64];
        let mut body = json!({"prompt": prompts, "n": 8, "max_tokens": 1});
        body[name] = value;
        assert_eq!(post(to, "/v1/completions", &body).error(400)["param"], name);
    }
    let local = start(&["--max-request-memory", "1M"]);
    let body = json!({"prompt": ["a", "b"], "n": 8, "max_tokens": 64, "n_probs": 100});
    let error = post(local.to, "/completion", &body).error(400);
    assert!(error["message"].as_str().expect("a text").contains("--max-request-memory"), "{error}");
    ask(local.to, "/completion", &json!({"prompt": "a", "n": 2, "max_tokens": 2, "n_probs": 100}));
}

/// Answers that nobody reads have room up to a limit, and when they are gone there is room again.
#[test]
fn unread_answers_have_a_limit() {
    let local = start(&["--max-unread", "1M", "--stall-timeout", "100"]);
    let answered = |words: usize| json!({"content": "a ".repeat(words)}).to_string();
    // More than a connection holds.
    let unread = open(local.to, &request("POST", "/tokenize", &[], answered(1_900_000).as_bytes()));
    let status = || raw(local.to, &request("POST", "/tokenize", &[], answered(60_000).as_bytes())).status;
    assert!((0..1000).any(|_| status() == 503));
    assert_eq!(get(local.to, "/health").status, 200);
    drop(unread);
    assert!((0..1000).any(|_| status() == 200));
}

/// A request gets everything that it may ask for, though it is more than can run or wait at once; and others are not
/// refused.
#[test]
fn permitted_batches_wait_for_their_turn() {
    let local = start(&["--parallel", "1", "--max-queue", "2"]);
    let to = local.to;
    let batch = json!({"prompt": ["One", "Two", "Three"], "n": 8, "max_tokens": 3, "seed": 5});
    let (all, other) = thread::scope(|s| {
        let all = s.spawn(|| ask(to, "/v1/completions", &batch));
        let other = s.spawn(|| ask(to, "/v1/completions", &json!({"prompt": "The", "max_tokens": 1})));
        (all.join().expect("an answer"), other.join().expect("an answer"))
    });
    assert_eq!(other["choices"].as_array().map(Vec::len), Some(1));
    let choices = all["choices"].as_array().expect("texts");
    assert_eq!(choices.len(), 24);
    // Every text is the one that is asked for alone.
    let one = ask(to, "/v1/completions", &json!({"prompt": "Two", "max_tokens": 3, "seed": 8}));
    assert_eq!(choices[8 + 3]["text"], one["choices"][0]["text"]);
}

/// Fields that say which tokens may come are followed or refused by name, on every route.
#[test]
fn constraints_are_never_ignored() {
    let to = shared();
    let message = json!([{"role": "user", "content": "Hi"}]);
    let routes = [
        ("/completion", json!({"prompt": "Hi", "n_predict": 4})),
        ("/v1/completions", json!({"prompt": "Hi", "max_tokens": 4})),
        ("/v1/chat/completions", json!({"messages": message, "max_tokens": 4})),
        ("/v1/messages", json!({"messages": message, "max_tokens": 4})),
        ("/v1/responses", json!({"input": "Hi", "max_output_tokens": 4})),
    ];
    let refused = [
        ("functions", json!([{"name": "f", "parameters": {}}])),
        ("guided_regex", json!("[0-9]+")),
        ("guided_grammar", json!("root ::= \"a\"")),
        ("structured_outputs", json!({"regex": "a+"})),
        ("stop_token_ids", json!([2])),
        ("min_tokens", json!(3)),
        ("allowed_token_ids", json!([5, 6])),
        ("bad_words", json!(["no"])),
        ("regex", json!("[0-9]+")),
        ("max_new_tokens", json!(3)),
        ("repetition_penalty", json!(1.2)),
        ("suppress_tokens", json!([5])),
        ("format", json!({"type": "integer"})),
    ];
    for (path, body) in &routes {
        for (name, value) in &refused {
            let mut body = body.clone();
            body[*name] = value.clone();
            assert_eq!(post(to, path, &body).error_of(400)["param"], *name, "{path}");
        }
    }
    let followed = [
        ("guided_choice", json!(["yes\n", "no\n"])),
        ("structured_outputs", json!({"choice": ["yes\n", "no\n"]})),
        ("guided_json", json!({"enum": ["yes", "no"]})),
        ("guided_json", json!("{\"enum\": [\"yes\", \"no\"]}")),
        ("structured_outputs", json!({"json": {"enum": ["yes", "no"]}})),
    ];
    for (name, value) in followed {
        let mut body = json!({"prompt": "Hi", "max_tokens": 40, "seed": 3});
        body[name] = value;
        let text = ask(to, "/v1/completions", &body)["choices"][0]["text"].as_str().expect("a text").to_owned();
        assert!(["yes\n", "no\n", "\"yes\"", "\"no\""].contains(&&*text), "{name}: {text:?}");
    }
    let format = json!({"type": "json_schema", "schema": {"enum": ["yes", "no"]}});
    for (name, value) in [("output_format", format.clone()), ("output_config", json!({ "format": format }))] {
        let mut body = json!({"messages": message, "max_tokens": 40, "seed": 3});
        body[name] = value;
        let answer = ask(to, "/v1/messages", &body);
        let text = answer["content"][0]["text"].as_str().expect("a text");
        assert!(["\"yes\"", "\"no\""].contains(&text), "{name}: {text}");
    }
}

/// Counts the grammars that are compiled.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Isolate for Counting {
    fn run(&self, job: Job, request: &[u8], limits: Limits) -> Result<Vec<u8>, Failure> {
        self.0.fetch_add(usize::from(job == Job::Grammar), SeqCst);
        isolate().run(job, request, limits)
    }
}

/// A grammar that takes too much is compiled once, and keeps nobody waiting that asks for none.
#[test]
fn grammars_that_take_too_much_are_refused_once() {
    let counting = Arc::new(Counting::default());
    let local = start_isolated(&["--parallel", "2", "--queue-timeout", "3600"], counting.clone());
    let to = local.to;
    let ask_for = |a: u32| {
        let numbers = [a, 10_007].map(|n| json!({"type": "integer", "multipleOf": n}));
        let response = post(to, "/completion", &json!({"prompt": "a", "json_schema": {"allOf": numbers}}));
        response.error(400)["message"].as_str().expect("a text").to_owned()
    };
    let many = [9973, 9967, 9949, 9941];
    let order = AtomicUsize::new(0);
    let (plain, told) = thread::scope(|s| {
        let (order, ask_for) = (&order, &ask_for);
        let asked = many.map(|a| s.spawn(move || (ask_for(a), order.fetch_add(1, SeqCst))));
        ask(to, "/completion", &json!({"prompt": "a", "n_predict": 1}));
        let plain = order.load(SeqCst);
        (plain, asked.map(|thread| thread.join().expect("an answer").0))
    });
    assert!(told.iter().all(|message| message.contains("given up")), "{told:?}");
    assert!(plain < many.len(), "the one that asked for no form waited for all others");
    assert_eq!(counting.0.load(SeqCst), many.len());
    (0..5).for_each(|_| assert_eq!(ask_for(many[0]), told[0]));
    assert_eq!(counting.0.load(SeqCst), many.len());
}

#[test]
fn pages_of_listed_origins_may_send_what_clients_send() {
    let local = start(&["--cors-origins", "http://good.example"]);
    let asked = "authorization,x-stainless-os,anthropic-version,content-type,x-other";
    let headers = [
        ("origin", "http://good.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", asked),
    ];
    let response = raw(local.to, &request("OPTIONS", "/v1/chat/completions", &headers, b""));
    assert_eq!(response.status, 200);
    let may = response.header("access-control-allow-headers").expect("a header");
    let may: Vec<&str> = may.split(", ").collect();
    for name in ["authorization", "x-stainless-os", "anthropic-version", "content-type", "x-request-id"] {
        assert!(may.contains(&name), "{name}: {may:?}");
    }
    assert!(!may.contains(&"x-other"), "{may:?}");
    let exposed = response.header("access-control-expose-headers").expect("a header");
    assert!(exposed.contains("x-request-id"), "{exposed}");
}

#[test]
fn what_clients_of_openai_and_anthropic_expect() {
    let to = shared();
    let message = json!([{"role": "user", "content": "Hi"}]);
    // Without a number there are no alternatives.
    let body = json!({"messages": message, "max_tokens": 2, "seed": 3, "logprobs": true});
    let told = ask(to, "/v1/chat/completions", &body)["choices"][0]["logprobs"]["content"][0].clone();
    assert_eq!(told["top_logprobs"], json!([]));
    assert!(told["logprob"].is_number());
    let listed = get(to, "/v1/models").json();
    assert_eq!(get(to, "/v1/models/m").json(), listed["data"][0]);
    assert_eq!(get(to, "/v1/models/other").json()["id"], "other");
    get(to, "/v1/models/none").error(404);
    for path in ["/v1/moderations", "/v1/audio/speech", "/v1/images/generations", "/v1/files", "/v1/batches"] {
        post(to, path, &json!({})).error(501);
    }
    let wrong = post(to, "/v1/messages", &json!({"messages": message, "max_tokens": "x"}));
    assert_eq!(wrong.error_of(400)["type"], "invalid_request_error");
    assert_eq!(wrong.json()["type"], "error");
    // The first numbers of a vector, of length 1 again.
    let vector = |body: Value| -> Vec<f64> {
        let all = ask(to, "/v1/embeddings", &body);
        all["data"][0]["embedding"].as_array().expect("numbers").iter().map(|x| x.as_f64().expect("one")).collect()
    };
    let (whole, short) = (vector(json!({"input": "Hi"})), vector(json!({"input": "Hi", "dimensions": 8})));
    let length = whole[..8].iter().map(|x| x * x).sum::<f64>().sqrt();
    assert_eq!(short.len(), 8);
    for (a, b) in short.iter().zip(&whole) {
        assert!((a - b / length).abs() < 1e-5, "{a} {b}");
    }
    post(to, "/v1/embeddings", &json!({"input": "Hi", "dimensions": whole.len() + 1})).error(400);
}
