//! Texts that go on when their context is full.

use serde_json::{Value, json};
use trine::{ContextOptions, GenerateOptions, Model, SamplerOptions};

use crate::client::ask;
use crate::determinism::together;
use crate::local::{any_precision, start_with};

/// Tokens of a context.
const N_CTX: usize = 64;

/// Long texts of prompts of several lengths, each with the tokens of its prompt that stay.
fn bodies() -> Vec<Value> {
    let text = std::fs::read_to_string(trine_testkit::wikitext()).expect("a text");
    let text: Vec<char> = text.chars().take(4000).collect();
    let one = |i: usize| {
        let (keep, temperature, penalty) = ([0, 5, -1][i % 3], [0.0, 1.0][i % 2], [1.0, 1.1][i / 2 % 2]);
        let prompt: String = text[i * 151..i * 151 + 5 + i * 17].iter().collect();
        json!({
            "prompt": prompt, "max_tokens": 150 + i, "n_keep": keep, "temperature": temperature, "seed": i,
            "ignore_eos": true, "return_tokens": true, "repeat_penalty": penalty,
        })
    };
    (0..8).map(one).collect()
}

/// The tokens of the same text by the library.
fn expected(model: &Model, body: &Value) -> Vec<u32> {
    let number = |name: &str| body[name].as_f64().expect("a number");
    let prompt = model.tokenizer().encode(body["prompt"].as_str().expect("a text"), true, true).expect("tokens");
    let keep = match body["n_keep"].as_i64() {
        Some(n @ 0..) => (n as usize + 1).min(prompt.len()),
        _ => prompt.len(),
    };
    let options = GenerateOptions {
        max_tokens: Some(number("max_tokens") as usize),
        ignore_eos: true,
        shift: Some(keep),
        sampler: SamplerOptions {
            temp: number("temperature") as f32,
            seed: number("seed") as u32,
            repeat_penalty: number("repeat_penalty") as f32,
            ..SamplerOptions::default()
        },
        ..GenerateOptions::default()
    };
    let mut context = model.context(&ContextOptions { n_ctx: Some(N_CTX), ..ContextOptions::default() });
    let tokens = context.generate(prompt, &options).expect("a text").complete().expect("a text").tokens;
    assert!(context.stats().shifts > 1);
    tokens
}

#[test]
fn a_full_context_forgets_as_rgen_does() {
    let folder = trine_testkit::folder();
    let path = any_precision(folder.path());
    let model = crate::local::open(&path);
    let bodies = bodies();
    let expected: Vec<Vec<u32>> = bodies.iter().map(|body| expected(&model, body)).collect();
    for more in [
        &[][..],
        &["--kv-memory", "1M", "--parallel", "3"],
        &["--draft-bits", "2", "--draft-always"],
        &["--spec-type", "ngram-simple"],
    ] {
        let options = [&["-c", "64", "--context-shift", "--max-queue", "64"][..], more].concat();
        let local = start_with(&path, &options);
        let answers = together(local.to, &bodies);
        let tokens = answers.iter().map(|choices| serde_json::from_value(choices[0]["tokens"].clone()).expect("ids"));
        assert_eq!(tokens.collect::<Vec<Vec<u32>>>(), expected, "{more:?}");
    }
}

#[test]
fn a_text_without_a_length_ends_with_its_context() {
    let path = trine_testkit::trilm();
    let path = path.to_str().expect("a path");
    let shifting = start_with(path, &["-c", "64", "--context-shift", "--keep", "3"]);
    let mut body = json!({"prompt": "The game", "ignore_eos": true, "seed": 1});
    let answer = ask(shifting.to, "/completion", &body);
    assert_eq!((&answer["truncated"], &answer["stop_type"]), (&true.into(), &"limit".into()));
    let tokens = |answer: &Value| answer["tokens_predicted"].as_u64().expect("a number");
    let to_the_end = tokens(&answer);
    assert!(to_the_end < 64);
    body["n_predict"] = 100.into();
    let answer = ask(shifting.to, "/completion", &body);
    assert_eq!((tokens(&answer), &answer["truncated"]), (100, &true.into()));
    // BOS stays too.
    assert_eq!(answer["generation_settings"]["n_keep"], 4);
    body["n_predict"] = 9.into();
    assert_eq!(ask(shifting.to, "/completion", &body)["truncated"], false);
    body["n_predict"] = 100.into();
    let ending = start_with(path, &["-c", "64"]);
    assert_eq!(tokens(&ask(ending.to, "/completion", &body)), to_the_end);
}
