//! Models whose encoder reads the prompt: the library's texts, whatever shares the steps.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};
use trine::{GenerateOptions, SamplerOptions};
use trine_testkit::archs::{Listing, with_encoder};

use crate::client::{ask, open as send, post, request};
use crate::local::{Local, open, start_with};

/// The small T5 with a vocabulary of letters, as a file of `folder`.
fn model(folder: &Path) -> String {
    let listing = std::fs::read_to_string(with_encoder("t5")).expect("a listing");
    let letters: String = ('a'..='z').map(|c| format!(" {c}")).collect();
    let vocabulary = format!(
        "key tokenizer.ggml.model str t5\n\
         key tokenizer.ggml.tokens [str] <pad> </s> <unk> \u{2581}{letters} \u{2581}{{0..130}}\n\
         key tokenizer.ggml.scores [f32] 0*3 -2*157\n\
         key tokenizer.ggml.token_type [i32] 3 3 2 1*157\n\
         key tokenizer.ggml.eos_token_id u32 1\n\
         key tokenizer.ggml.unknown_token_id u32 2\n\
         key tokenizer.ggml.padding_token_id u32 0\n\
         key tokenizer.ggml.add_bos_token bool false\n\
         key tokenizer.ggml.add_eos_token bool true\n"
    );
    let others = listing.lines().filter(|line| !line.starts_with("key tokenizer.ggml."));
    let (tensors, keys): (Vec<_>, Vec<_>) = others.partition(|line| line.starts_with("tensor "));
    let listing = [&keys.join("\n"), "\n", &vocabulary, &tensors.join("\n")].concat();
    let path = folder.join("t5.gguf");
    std::fs::write(&path, Listing::parse(&listing).file()).expect("room for the model");
    path.to_str().expect("a path").to_owned()
}

/// A server of the model, in a folder that stays as long.
fn start(more: &[&str]) -> (Local, tempfile::TempDir) {
    let folder = trine_testkit::folder();
    let model = model(folder.path());
    (start_with(&model, more), folder)
}

const PROMPTS: [&str; 4] = ["a quick brown fox", "over the lazy dog", "a quick brown fix", "x"];

fn options(seed: usize) -> GenerateOptions {
    let sampler = SamplerOptions { seed: seed as u32, temp: 0.9, ..SamplerOptions::default() };
    GenerateOptions { max_tokens: Some(24), sampler, ..GenerateOptions::default() }
}

/// The request for a text that the library writes with [`options`].
fn body(prompt: &str, seed: usize) -> Value {
    json!({"prompt": prompt, "max_tokens": 24, "seed": seed, "temperature": 0.9, "return_tokens": true})
}

/// The library's tokens and text behind each of [`PROMPTS`].
fn expected(model: &str) -> Vec<(Value, String)> {
    let model = open(model);
    let text = |(seed, prompt): (usize, &&str)| {
        let done = model.generate(*prompt, &options(seed)).expect("room").complete().expect("a text");
        (json!(done.tokens), done.text)
    };
    PROMPTS.iter().enumerate().map(text).collect()
}

fn answer(to: SocketAddr, body: &Value) -> (Value, String) {
    let choice = ask(to, "/v1/completions", body)["choices"][0].clone();
    (choice["tokens"].clone(), choice["text"].as_str().expect("a text").to_owned())
}

/// The texts of all prompts at once.
fn together(to: SocketAddr) -> Vec<(Value, String)> {
    thread::scope(|s| {
        let ask = |(seed, prompt): (usize, &&'static str)| {
            let body = body(prompt, seed);
            s.spawn(move || answer(to, &body))
        };
        let threads: Vec<_> = PROMPTS.iter().enumerate().map(ask).collect();
        threads.into_iter().map(|t| t.join().expect("an answer")).collect()
    })
}

#[test]
fn texts_are_the_librarys_alone_and_beside_others() {
    let (local, folder) = start(&[]);
    let expected = expected(&model(folder.path()));
    assert!((1..PROMPTS.len()).all(|i| expected[i] != expected[0]), "{expected:?}");
    let alone: Vec<_> =
        PROMPTS.iter().enumerate().map(|(seed, prompt)| answer(local.to, &body(prompt, seed))).collect();
    assert_eq!(alone, expected);
    assert_eq!(together(local.to), expected);
    // one page, or two places: they wait for one another
    for more in [&["--kv-memory", "1", "-c", "64"][..], &["--parallel", "2"]] {
        let (local, _folder) = start(more);
        assert_eq!(together(local.to), expected, "{more:?}");
    }
}

#[test]
fn the_prompt_is_counted_streamed_and_shared_by_choices() {
    let (local, folder) = start(&[]);
    let expected = expected(&model(folder.path()));
    let tokens = ask(local.to, "/tokenize", &json!({"content": PROMPTS[0], "add_special": true}))["tokens"].clone();
    let whole =
        ask(local.to, "/completion", &json!({"prompt": PROMPTS[0], "n_predict": 24, "seed": 0, "temperature": 0.9}));
    assert_eq!(whole["content"], expected[0].1);
    // the decoder's first token is evaluated too
    assert_eq!(whole["tokens_evaluated"], tokens.as_array().expect("a list").len() + 1);
    assert_eq!(whole["tokens_cached"], 0);
    let mut streamed = body(PROMPTS[0], 0);
    streamed["stream"] = true.into();
    streamed["return_progress"] = true.into();
    let (events, done) = post(local.to, "/v1/completions", &streamed).events();
    let text: String = events.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
    assert!(done);
    assert_eq!(text, expected[0].1);
    let mut several = body(PROMPTS[0], 0);
    several["n"] = 3.into();
    let several = ask(local.to, "/v1/completions", &several)["choices"].clone();
    for seed in 0..3 {
        let one = answer(local.to, &body(PROMPTS[0], seed));
        assert_eq!((&several[seed]["tokens"], several[seed]["text"].as_str()), (&one.0, Some(&one.1[..])));
    }
    // a text goes on behind tokens of its own
    let mut rest = body(PROMPTS[1], 1);
    let tokens = expected[1].0.as_array().expect("a list");
    rest["resume_tokens"] = tokens[..3].into();
    assert_eq!(answer(local.to, &rest).0, json!(tokens[3..]));
    // and nothing of it is found again: the positions attend to a prompt that is another's, or may be
    let again = ask(local.to, "/v1/completions", &rest);
    assert_eq!(again["choices"][0]["tokens"], json!(tokens[3..]));
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn those_who_leave_change_nothing() {
    let (local, folder) = start(&["--parallel", "2", "-c", "512"]);
    let expected = expected(&model(folder.path()));
    let long: Vec<usize> = (0..500).map(|i| 3 + i * 7 % 150).collect();
    let leaving: Vec<_> = (0..4)
        .map(|seed| {
            let body = json!({"prompt": long, "seed": seed, "stream": true, "ignore_eos": true, "n_predict": 400});
            send(local.to, &request("POST", "/completion", &[], body.to_string().as_bytes()))
        })
        .collect();
    let texts = thread::scope(|s| {
        let texts = s.spawn(|| together(local.to));
        drop(leaving);
        texts.join().expect("texts")
    });
    assert_eq!(texts, expected);
}

#[test]
fn routes_without_a_meaning_refuse_in_one_line() {
    let kept = trine_testkit::folder();
    let (local, _folder) = start(&["--slot-save-path", kept.path().to_str().expect("a path"), "-c", "64"]);
    let refused = |path: &str, body: Value, status: u16, why: &str| {
        let error = post(local.to, path, &body).error(status);
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(why) && !message.contains('\n'), "{path}: {message}");
    };
    ask(local.to, "/completion", &json!({"prompt": "a fox", "n_predict": 2}));
    refused("/v1/embeddings", json!({"input": "a fox"}), 400, "it makes no vectors");
    refused("/v1/rerank", json!({"query": "a", "documents": ["fox"]}), 400, "does not rank texts");
    refused("/infill", json!({"input_prefix": "a", "input_suffix": "b"}), 501, "");
    refused("/slots/0?action=save", json!({"filename": "kept"}), 501, "its texts are not kept");
    let echo = json!({"prompt": "a fox", "echo": true, "logprobs": 1, "max_tokens": 2});
    refused("/v1/completions", echo, 400, "have no probabilities");
    let long: Vec<usize> = vec![5; 65];
    refused("/completion", json!({"prompt": long}), 400, "exceeds the available context size (64 tokens)");
    // what is said to a chat is a prompt as any other, where somebody gives a template
    let chat = json!({"messages": [{"role": "user", "content": "a fox"}], "max_tokens": 4, "temperature": 0});
    let said = ask(local.to, "/v1/chat/completions", &chat)["choices"][0]["message"]["content"].clone();
    let prompt = "user: a fox\nassistant:";
    let same = ask(local.to, "/completion", &json!({"prompt": prompt, "n_predict": 4, "temperature": 0}));
    assert_eq!(said, same["content"]);
}
