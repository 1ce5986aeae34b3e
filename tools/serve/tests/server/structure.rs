//! Texts that have a form.

use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};
use trine::grammar::Vocabulary;
use trine::{GenerateOptions, Grammar, SamplerOptions};

use crate::client::{ask, post};
use crate::local::{shared, start};

/// JSON whose texts end by themselves.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "piece": {"enum": ["king", "queen", "rook"]},
            "moves": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 1, "maxItems": 4},
            "note": {"type": "string", "maxLength": 12},
        },
        "required": ["piece", "moves", "note"],
        "additionalProperties": false,
    })
}

#[track_caller]
fn fits(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(["king", "queen", "rook"].map(Value::from).contains(&value["piece"]), "{text}");
    let moves = value["moves"].as_array().expect("an array");
    assert!((1..=4).contains(&moves.len()), "{text}");
    assert!(moves.iter().all(|m| m.as_u64().is_some_and(|m| m < 100)), "{text}");
    let note = value["note"].as_str().expect("a string");
    assert!(note.chars().count() <= 12, "{text}");
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(3), "{text}");
}

/// Requests for such texts by all routes and in all spellings.
fn requests(n: usize) -> Vec<(&'static str, Value)> {
    let one = |i: usize| {
        let mut body =
            json!({"seed": i, "temperature": 1.2, "max_tokens": 200, "return_tokens": true, "logprobs": true});
        let (path, field, value) = match i % 4 {
            0 => (
                "/v1/chat/completions",
                "response_format",
                json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema()}}),
            ),
            1 => ("/v1/completions", "response_format", json!({"type": "json_object", "schema": schema()})),
            2 => ("/completion", "json_schema", schema()),
            _ => ("/v1/completions", "json_schema", schema()),
        };
        body[field] = value;
        if path == "/v1/chat/completions" {
            body["messages"] = json!([{"role": "user", "content": format!("Move {i}")}]);
        } else {
            body["prompt"] = format!("Move {i}: ").into();
            body["logprobs"] = 2.into();
        }
        (path, body)
    };
    (0..n).map(one).collect()
}

fn choice(to: SocketAddr, (path, body): &(&str, Value)) -> Value {
    let answer = ask(to, path, body);
    match answer.get("choices") {
        Some(choices) => choices[0].clone(),
        None => {
            json!({"text": answer["content"], "tokens": answer["tokens"], "finish_reason": answer["stop_type"]})
        }
    }
}

fn text(choice: &Value) -> &str {
    let text = choice.get("text").unwrap_or(&choice["message"]["content"]);
    text.as_str().expect("a text")
}

#[test]
fn json_follows_its_schema_and_load_changes_nothing() {
    let requests = requests(12);
    let quiet = start(&[]);
    let expected: Vec<Value> = requests.iter().map(|r| choice(quiet.to, r)).collect();
    for choice in &expected {
        assert!(["stop", "eos"].map(Value::from).contains(&choice["finish_reason"]), "{choice}");
        fits(text(choice));
    }
    for options in [
        &["--max-queue", "64", "--parallel", "12"][..],
        &["--max-queue", "64", "--kv-memory", "1M", "--prefill-chunk", "3"],
    ] {
        let local = start(options);
        let to = local.to;
        let found: Vec<Value> = thread::scope(|s| {
            let threads: Vec<_> = requests.iter().map(|r| s.spawn(move || choice(to, r))).collect();
            threads.into_iter().map(|t| t.join().expect("an answer")).collect()
        });
        assert_eq!(found, expected, "{options:?}");
    }
}

#[test]
fn a_form_streams_resumes_and_replays() {
    let to = shared();
    for (path, body) in requests(3) {
        let whole = choice(to, &(path, body.clone()));
        let mut streamed = body.clone();
        streamed["stream"] = true.into();
        let (events, _) = post(to, path, &streamed).events();
        let part = |e: &Value| {
            let found = [&e["content"], &e["choices"][0]["text"], &e["choices"][0]["delta"]["content"]];
            found.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
        };
        // The last object of the native route repeats nothing.
        assert_eq!(events.iter().map(part).collect::<String>(), text(&whole), "{path}");
        let tokens = whole["tokens"].as_array().expect("tokens").clone();
        for k in [1, tokens.len() / 2, tokens.len() - 1] {
            let mut rest = body.clone();
            rest["resume_tokens"] = tokens[..k].into();
            let rest = choice(to, &(path, rest));
            assert_eq!(rest["tokens"].as_array(), Some(&tokens[k..].to_vec()), "{path} {k}");
        }
    }
    let (path, mut body) = requests(2).remove(1);
    body["resume_tokens"] = json!([5]);
    let error = post(to, path, &body).error(400);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("resume_tokens")), "{error}");
}

#[test]
fn grammars_of_llama_cpp() {
    let to = shared();
    let ask = |grammar: &str, more: Value| {
        let mut body = json!({"prompt": "Is it?", "grammar": grammar, "n_predict": 40});
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        ask(to, "/completion", &body)
    };
    for seed in 0..6 {
        let a = ask("root ::= \"yes\" | \"no\"", json!({"seed": seed, "temperature": 2}));
        assert!(["yes", "no"].map(Value::from).contains(&a["content"]), "{a}");
        assert_eq!(a["stop_type"], "eos");
        assert_eq!(a["generation_settings"]["grammar"], "root ::= \"yes\" | \"no\"");
        let nested = ask("root ::= pair\npair ::= \"(\" pair? \")\"", json!({"seed": seed}));
        let text = nested["content"].as_str().expect("a text");
        if nested["stop_type"] == "eos" {
            let depth = text.len() / 2;
            assert_eq!(text, "(".repeat(depth) + &")".repeat(depth));
        }
    }
    // The end of a text that may not end by itself is the end of its grammar.
    let a = ask("root ::= \"yes\"", json!({"ignore_eos": true}));
    assert_eq!((&a["content"], &a["stop_type"]), (&json!("yes"), &json!("eos")));
}

#[test]
fn a_form_is_that_of_the_library() {
    let model = crate::local::open(trine_testkit::trilm());
    let vocabulary = Vocabulary::new(model.tokenizer()).expect("a vocabulary");
    let options = GenerateOptions {
        max_tokens: Some(200),
        sampler: SamplerOptions { seed: 4, ..SamplerOptions::default() },
        grammar: Some(Grammar::json_schema(&vocabulary, &schema()).expect("a grammar")),
        ..GenerateOptions::default()
    };
    let generation = model.generate("Move: ", &options).expect("a generation");
    let text = generation.complete().expect("a text").text;
    fits(&text);
    let body = json!({"prompt": "Move: ", "max_tokens": 200, "seed": 4, "json_schema": schema()});
    assert_eq!(ask(shared(), "/v1/completions", &body)["choices"][0]["text"], text);
}

#[test]
fn what_cannot_be_enforced_is_refused() {
    let to = shared();
    for (name, value) in [
        ("response_format", json!({"type": "xml"})),
        ("response_format", json!({"type": "json_schema"})),
        ("response_format", json!({"type": "json_schema", "json_schema": {"name": "x"}})),
        ("response_format", json!({"type": "json_object", "schema": 7})),
        ("json_schema", json!({"type": "array", "uniqueItems": true})),
        ("json_schema", json!({"$ref": "https://example.com/"})),
        ("json_schema", json!({"type": "string", "pattern": "(".repeat(1000)})),
        ("json_schema", json!({"type": "string", "description": "x".repeat(300_000)})),
        ("grammar", json!("root ::= [")),
        ("grammar", json!("root ::= missing")),
        ("grammar", json!(["root"])),
    ] {
        let mut body = json!({"prompt": "The", "max_tokens": 4});
        body[name] = value;
        let error = post(to, "/v1/completions", &body).error(400);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("'{name}'")), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
    let both = json!({"prompt": "The", "grammar": "root ::= \"a\"", "json_schema": {"type": "object"}});
    post(to, "/completion", &both).error(400);
}
