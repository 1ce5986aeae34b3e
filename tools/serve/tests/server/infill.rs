//! Texts with a gap. Expected: the order and the lengths of llama.cpp's `format_prompt_infill`.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{ask, post};
use crate::local::{Local, shared, start};

/// A server of the bundled model in which these ids mark the parts of a text with a gap.
pub fn filling(files: bool) -> Local {
    let mut options: Vec<String> = vec!["-c".to_owned(), "512".to_owned()];
    let (around, others) = ([("pre", 300), ("suf", 301), ("mid", 302)], [("rep", 303), ("sep", 304)]);
    for (role, id) in around.iter().chain(others.iter().filter(|_| files)) {
        options.push("--override-kv".to_owned());
        options.push(format!("tokenizer.ggml.fim_{role}_token_id=int:{id}"));
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    start(&options)
}

/// The tokens of a text within a prompt.
fn tokens(to: SocketAddr, text: &str) -> Vec<Value> {
    let body = json!({"content": text, "add_special": false, "parse_special": false});
    ask(to, "/tokenize", &body)["tokens"].as_array().expect("tokens").clone()
}

/// The mark before the text in front of the gap, and the token that begins every text of the model.
fn begin(to: SocketAddr) -> Vec<Value> {
    let bos = ask(to, "/tokenize", &json!({"content": "", "add_special": true}))["tokens"].clone();
    let mut tokens = bos.as_array().expect("tokens").clone();
    assert_eq!(tokens.len(), 1);
    tokens.push(300.into());
    tokens
}

/// Asserts that a request is answered as one with this prompt.
#[track_caller]
fn same(to: SocketAddr, (path, body): (&str, Value), prompt: Vec<Value>) {
    let with = |mut body: Value| {
        for (name, value) in [("n_predict", json!(12)), ("temperature", json!(0)), ("cache_prompt", json!(false))] {
            body[name] = value;
        }
        body
    };
    let length = prompt.len();
    let expected = ask(to, "/completion", &with(json!({ "prompt": prompt })));
    assert_eq!(expected["tokens_evaluated"], length);
    let answer = ask(to, path, &with(body));
    let text = |answer: &Value| match path {
        "/infill" => answer["content"].clone(),
        "/v1/completions" => answer["choices"][0]["text"].clone(),
        _ => answer["response"].clone(),
    };
    assert_eq!(text(&answer), expected["content"], "{path}");
    let read = [&answer["tokens_evaluated"], &answer["usage"]["prompt_tokens"], &answer["prompt_eval_count"]];
    assert!(read.iter().any(|n| **n == length), "{path}: {answer}");
}

#[test]
fn the_gap_is_between_its_marks() {
    let local = filling(false);
    let (to, mark) = (local.to, |id: u32| vec![json!(id)]);
    let (before, behind) = (tokens(to, "The first game"), tokens(to, " in the year"));
    let around = [begin(to), before.clone(), mark(301), behind.clone(), mark(302)].concat();
    let gap = json!({"input_prefix": "The first game", "input_suffix": " in the year"});
    same(to, ("/infill", gap.clone()), around.clone());
    let openai = json!({"prompt": "The first game", "suffix": " in the year"});
    same(to, ("/v1/completions", openai.clone()), around);
    let body =
        json!({"prompt": "The first game", "suffix": " in the year", "stream": false, "options": {"num_predict": 2}});
    let (ollama, openai) = (ask(to, "/api/generate", &body), ask(to, "/v1/completions", &openai));
    assert_eq!(ollama["prompt_eval_count"], openai["usage"]["prompt_tokens"]);
    // The beginning of the gap's text stands behind the text before it; other texts stand before all.
    let mut gap = gap;
    gap["prompt"] = " was".into();
    gap["input_extra"] = json!([{"text": "A song", "filename": "a.txt"}, {"text": "A ship"}]);
    let snippet = tokens(to, "\n\n--- snippet ---\n\n");
    let extra = [snippet.clone(), tokens(to, "A song"), snippet, tokens(to, "A ship")].concat();
    let around = [begin(to), before, tokens(to, " was"), mark(301), behind, mark(302)].concat();
    same(to, ("/infill", gap), [extra, around].concat());
}

#[test]
fn files_have_names_where_the_model_knows_them() {
    let local = filling(true);
    let (to, mark) = (local.to, |id: u32| vec![json!(id)]);
    let gap = json!({
        "input_prefix": "The", "input_suffix": " year", "input_extra": [{"text": "A song", "filename": "a.txt"}, {"text": "A ship"}],
    });
    let extra = [
        mark(303),
        tokens(to, "myproject\n"),
        mark(304),
        tokens(to, "a.txt\n"),
        tokens(to, "A song"),
        mark(304),
        tokens(to, "tmp\n"),
        tokens(to, "A ship"),
        mark(304),
        tokens(to, "filename\n"),
    ];
    let around = [begin(to), tokens(to, "The"), mark(301), tokens(to, " year"), mark(302)];
    same(to, ("/infill", gap), [extra.concat(), around.concat()].concat());
}

#[test]
fn long_texts_are_cut_where_they_are_far_from_the_gap() {
    let local = filling(false);
    let (to, mark) = (local.to, |id: u32| vec![json!(id)]);
    let long = "The ship of the year was a game. ".repeat(60);
    let all = tokens(to, &long);
    let gap = json!({"input_prefix": long, "input_suffix": long, "input_extra": [{"text": long}]});
    // Half of 512 tokens around the gap, a quarter of them behind it; the rest less twice the answer's before.
    let (before, behind) = (&all[all.len() - 192..], &all[..62]);
    let around = [begin(to), before.to_vec(), mark(301), behind.to_vec(), mark(302)].concat();
    let extra = &all[all.len() - (512 - 256 - 2 * 12)..];
    same(to, ("/infill", gap), [extra.to_vec(), around].concat());
}

#[test]
fn what_is_wrong_is_named() {
    let local = filling(false);
    let gap = json!({"input_prefix": "The", "input_suffix": " year"});
    for (name, value) in [
        ("input_prefix", json!(null)),
        ("input_suffix", json!(["x"])),
        ("prompt", json!([1, 2])),
        ("input_extra", json!({})),
        ("input_extra", json!([{}])),
        ("input_extra", json!([{"filename": "ok"}])),
        ("filename", json!([{"filename": 123, "text": "abc"}])),
        ("text", json!([{"filename": 123, "text": 456}])),
    ] {
        let mut body = gap.clone();
        let field = if name.starts_with("input") || name == "prompt" { name } else { "input_extra" };
        body[field] = value;
        let error = post(local.to, "/infill", &body).error(400);
        assert!(error["message"].as_str().is_some_and(|text| text.contains(name)), "{name}: {error}");
    }
    let error = post(shared(), "/infill", &gap).error(501);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("fills no gaps")), "{error}");
}
