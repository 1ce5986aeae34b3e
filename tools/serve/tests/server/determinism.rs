//! The text of a request is a function of the request.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};
use trine::eval::LogProbabilities;
use trine::{GenerateOptions, SamplerOptions, SessionOptions};

use crate::client::{ask, open, request};
use crate::local::{Local, any_precision, shared, start, start_with};

/// Different requests of all lengths.
pub fn requests(n: usize) -> Vec<Value> {
    let text = std::fs::read_to_string(trine_testkit::wikitext()).expect("a text");
    let text: Vec<char> = text.chars().take(40_000).collect();
    let one = |i: usize| {
        let prompt: String = text[i * 97..i * 97 + 3 + i * i * 3 % 700].iter().collect();
        json!({
            "prompt": prompt, "max_tokens": 1 + i * 7 % 40, "seed": i, "temperature": 1.0, "logprobs": i % 3,
            "repeat_penalty": if i.is_multiple_of(4) { 1.1 } else { 1.0 }, "return_tokens": true,
        })
    };
    (0..n).map(one).collect()
}

fn answer(to: SocketAddr, body: &Value) -> Value {
    ask(to, "/v1/completions", body)["choices"].clone()
}

/// All at once, in this order.
pub fn together(to: SocketAddr, bodies: &[Value]) -> Vec<Value> {
    thread::scope(|s| {
        let threads: Vec<_> = bodies.iter().map(|b| s.spawn(move || answer(to, b))).collect();
        threads.into_iter().map(|t| t.join().expect("an answer")).collect()
    })
}

pub fn alone(local: &Local, bodies: &[Value]) -> Vec<Value> {
    let uncached = |body: &Value| {
        let mut body = body.clone();
        body["cache_prompt"] = false.into();
        answer(local.to, &body)
    };
    bodies.iter().map(uncached).collect()
}

#[test]
fn neither_load_nor_cuts_nor_memory_change_a_text() {
    let bodies = requests(24);
    let expected = alone(&start(&[]), &bodies);
    let different: HashSet<String> = expected.iter().map(Value::to_string).collect();
    assert_eq!(different.len(), bodies.len());
    for options in [
        &["--prefill-chunk", "7", "--ubatch-size", "16"][..],
        &["--target-step-ms", "1", "--parallel", "3"],
        &["--kv-memory", "1M"],
    ] {
        let local = start(&[options, &["--max-queue", "64"]].concat());
        assert_eq!(together(local.to, &bodies), expected, "{options:?}");
        // again, with what is in the cache now
        assert_eq!(together(local.to, &bodies), expected, "{options:?}");
    }
}

#[test]
fn cancelled_neighbours_change_nothing() {
    let local = start(&["--parallel", "4", "--max-queue", "64"]);
    let bodies = requests(12);
    let expected = alone(&local, &bodies);
    let to = local.to;
    thread::scope(|s| {
        for (i, (body, expected)) in bodies.iter().zip(&expected).enumerate() {
            s.spawn(move || assert_eq!(&answer(to, body), expected, "{i}"));
            s.spawn(move || {
                let long = json!({"prompt": body["prompt"], "seed": i, "stream": i % 2 == 0, "ignore_eos": true});
                let bytes = request("POST", "/v1/completions", &[], long.to_string().as_bytes());
                let stream = open(to, &bytes);
                thread::sleep(std::time::Duration::from_millis(13 * i as u64));
                drop(stream);
            });
        }
    });
}

#[test]
fn the_text_is_that_of_the_library() {
    let model = crate::local::open(trine_testkit::trilm());
    for seed in [1, 2] {
        let options = GenerateOptions {
            max_tokens: Some(30),
            sampler: SamplerOptions { seed, ..SamplerOptions::default() },
            ..GenerateOptions::default()
        };
        let chunks = model.generate("The game of", &options).expect("a text");
        let text: String = chunks.map(|c| c.expect("a chunk").text).collect();
        let body = json!({"prompt": "The game of", "max_tokens": 30, "seed": seed});
        assert_eq!(answer(shared(), &body)[0]["text"], text);
    }
}

/// Requests of lm-eval's `local-completions`, and the sums of `rperplexity`.
#[test]
fn likelihoods_are_those_of_the_library() {
    let model = crate::local::open(trine_testkit::trilm());
    let tokens: Vec<u32> = (0..300).map(|i| 10 + i * i * 37 % 4000).collect();
    let mut expected = Vec::new();
    let mut session = model.session(SessionOptions { n_ctx: 512, n_ubatch: 512 });
    let mut take = |i: usize, logits: &[f32]| {
        if let Some(next) = tokens.get(i + 1) {
            expected.push(LogProbabilities::new(logits).of(*next) as f32);
        }
    };
    session.eval(&tokens, 0, &mut take).expect("room");
    let body =
        json!({"prompt": [tokens], "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": true, "seed": 1234});
    let told = answer(shared(), &body)[0]["logprobs"]["token_logprobs"].clone();
    let told = told.as_array().expect("a list");
    assert!(told[0].is_null());
    for (i, expected) in expected.iter().enumerate() {
        let got = told[i + 1].as_f64().expect("a number") as f32;
        assert_eq!(got.to_bits(), expected.to_bits(), "token {}", i + 1);
    }
}

#[test]
fn the_cache_changes_no_bit() {
    let local = start(&[]);
    let tokens: Vec<u32> = (0..400).map(|i| 10 + i * 37 % 4000).collect();
    let body = |len: usize, seed: usize| {
        let mut tokens = tokens[..len].to_vec();
        tokens.push(7 + seed as u32);
        json!({"prompt": tokens, "max_tokens": 6, "seed": seed, "logprobs": 2, "temperature": 1})
    };
    let cached = |a: &Value| a["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number");
    let mut hits = 0;
    for (seed, shared) in [300, 1, 31, 32, 127, 128, 129, 300].into_iter().enumerate() {
        let body = body(shared, seed);
        let expected = alone(&local, std::slice::from_ref(&body)).remove(0);
        for _ in 0..2 {
            let a = ask(local.to, "/v1/completions", &body);
            assert_eq!(a["choices"], expected, "{shared}");
            hits += cached(&a);
        }
        let mut salted = body;
        salted["cache_salt"] = format!("somebody else {seed}").into();
        assert_eq!(cached(&ask(local.to, "/v1/completions", &salted)), 0);
    }
    assert!(hits > 0);
}

#[test]
fn widths_side_by_side() {
    let folder = trine_testkit::folder();
    let options = ["--alias", "ap", "--tags", "chat,small"];
    let local = start_with(&any_precision(folder.path()), &options);
    let bodies: Vec<Value> = requests(9)
        .into_iter()
        .enumerate()
        .map(|(i, mut body)| {
            body["bits"] = (1 + i % 3).into();
            body
        })
        .collect();
    let expected = alone(&local, &bodies);
    assert_eq!(together(local.to, &bodies), expected);
    let mut named = bodies[1].clone();
    named.as_object_mut().expect("an object").remove("bits");
    named["model"] = "ap:2bit".into();
    let a = ask(local.to, "/v1/completions", &named);
    assert_eq!(a["choices"], expected[1]);
    assert_eq!(a["trine"]["bits"], 2);
    assert_eq!(a["model"], "ap:2bit");
    let listed = crate::client::get(local.to, "/v1/models").json();
    let ids: Vec<&Value> = listed["data"].as_array().expect("a list").iter().map(|m| &m["id"]).collect();
    assert_eq!(ids, ["ap", "ap:1bit", "ap:2bit", "ap:3bit"]);
    assert_eq!(listed["data"][1]["tags"], json!(["chat", "small"]));
    // The same weights as before, whatever planes and tables they are made of.
    let file = trine::open_file(trine_testkit::trilm(), true).expect("a file");
    let weights = file.tensors().map(|t| t.elements()).sum::<u64>();
    assert_eq!(listed["data"][0]["meta"]["n_params"], weights);
    named["bits"] = 8.into();
    named["model"] = "ap".into();
    crate::client::post(local.to, "/v1/completions", &named).error(400);
}

#[test]
fn seeds_are_told_and_replay() {
    let to = shared();
    let body = json!({"prompt": "The game", "max_tokens": 20, "temperature": 1.5});
    let a = ask(to, "/v1/completions", &body);
    let mut again = body.clone();
    again["seed"] = a["trine"]["seed"].clone();
    assert_eq!(answer(to, &again), a["choices"]);
    let mut several = body;
    several["n"] = 4.into();
    several["seed"] = 100.into();
    let several_answers = answer(to, &several);
    for i in 0..4 {
        let mut one = again.clone();
        one["seed"] = (100 + i).into();
        assert_eq!(answer(to, &one)[0]["text"], several_answers[i]["text"]);
    }
    assert_ne!(several_answers[0]["text"], several_answers[1]["text"]);
}

#[test]
fn a_text_goes_on_elsewhere() {
    let (one, two) = (shared(), start(&[]));
    let body = json!({
        "prompt": "The game of", "max_tokens": 16, "seed": 21, "temperature": 1, "repeat_penalty": 1.2, "return_tokens": true,
        "ignore_eos": true,
    });
    let whole = ask(one, "/v1/completions", &body)["choices"][0].clone();
    let tokens = whole["tokens"].as_array().expect("a list");
    let text = whole["text"].as_str().expect("a text");
    for k in [1, 2, 5, 9, 15] {
        let mut rest = body.clone();
        rest["resume_tokens"] = tokens[..k].into();
        let rest = ask(two.to, "/v1/completions", &rest)["choices"][0].clone();
        assert_eq!(rest["tokens"].as_array(), Some(&tokens[k..].to_vec()), "{k}");
        assert!(text.ends_with(rest["text"].as_str().expect("a text")), "{k}");
    }
}
