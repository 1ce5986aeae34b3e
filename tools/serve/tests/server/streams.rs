//! Answers that come token by token.

use serde_json::{Value, json};

use crate::client::{ask, post};
use crate::local::shared;

fn stream(path: &str, mut body: Value) -> (Vec<Value>, bool) {
    body["stream"] = true.into();
    post(shared(), path, &body).events()
}

#[test]
fn chunks_of_a_chat() {
    let messages = json!([{"role": "user", "content": "Who plays?"}]);
    let body = json!({"messages": messages, "max_tokens": 8, "seed": 11, "logprobs": true, "top_logprobs": 2});
    let whole = ask(shared(), "/v1/chat/completions", &body);
    let (chunks, done) = stream("/v1/chat/completions", body.clone());
    assert!(done);
    let first = &chunks[0]["choices"][0];
    assert_eq!(first["delta"], json!({"role": "assistant", "content": null}));
    assert!(chunks[0].get("timings").is_none());
    let last = &chunks[chunks.len() - 1];
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!(last["trine"]["seed"], 11);
    assert!(last["timings"]["predicted_n"] == 8);
    let mut text = String::new();
    let mut logprobs = Vec::new();
    for chunk in &chunks {
        assert_eq!(chunk["id"], chunks[0]["id"]);
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["system_fingerprint"], whole["system_fingerprint"]);
        assert!(chunk.get("usage").is_none());
        let list = chunk["choices"][0]["logprobs"]["content"].as_array();
        logprobs.extend(list.into_iter().flatten().cloned());
    }
    for chunk in &chunks[1..chunks.len() - 1] {
        let delta = chunk["choices"][0]["delta"].as_object().expect("an object");
        assert_eq!(delta.len(), 1);
        let content = delta["content"].as_str().expect("a text");
        assert!(!content.is_empty());
        assert_eq!(chunk["choices"][0]["finish_reason"], Value::Null);
        text += content;
    }
    assert_eq!(whole["choices"][0]["message"], json!({"role": "assistant", "content": text}));
    assert_eq!(whole["choices"][0]["logprobs"]["content"], Value::from(logprobs));
    let mut with_usage = body;
    with_usage["stream_options"] = json!({"include_usage": true});
    let (chunks, done) = stream("/v1/chat/completions", with_usage);
    let last = &chunks[chunks.len() - 1];
    assert!(done && last["choices"] == json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 8);
    assert_eq!(chunks.iter().filter(|c| c.get("usage").is_some()).count(), 1);
}

#[test]
fn a_stream_is_the_whole_text() {
    let to = shared();
    // several choices, stop strings across tokens, characters of several bytes from the prompt's repetition
    for (extra, n) in [
        (json!({}), 1),
        (json!({"n": 3}), 3),
        (json!({"stop": [" of the", "ing", ", and"]}), 1),
        (json!({"echo": true, "logprobs": 1}), 1),
        (json!({"logit_bias": {" é": 20}, "repeat_penalty": 1.3}), 1),
    ] {
        let mut body = json!({"prompt": "The game – „é“", "max_tokens": 24, "seed": 2, "temperature": 1});
        body.as_object_mut().expect("an object").extend(extra.as_object().cloned().expect("an object"));
        let whole = ask(to, "/v1/completions", &body);
        let (chunks, done) = stream("/v1/completions", body.clone());
        assert!(done);
        for i in 0..n {
            let mine = chunks.iter().map(|c| &c["choices"][0]).filter(|c| c["index"] == i);
            let text: String = mine.clone().filter_map(|c| c["text"].as_str()).collect();
            let reasons: Vec<&Value> = mine.clone().map(|c| &c["finish_reason"]).filter(|r| !r.is_null()).collect();
            assert_eq!(whole["choices"][i]["text"], text, "{body}");
            assert_eq!(reasons, [&whole["choices"][i]["finish_reason"]]);
            for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                let parts = mine.clone().filter_map(|c| c["logprobs"][name].as_array()).flatten().cloned();
                let parts: Vec<Value> = parts.collect();
                let all = whole["choices"][i]["logprobs"][name].as_array().cloned().unwrap_or_default();
                assert_eq!(parts, all, "{name}");
            }
        }
    }
}

#[test]
fn a_native_stream_ends_with_the_final_object() {
    let body = json!({"prompt": "The game", "n_predict": 5, "seed": 4, "return_progress": true});
    let whole = ask(shared(), "/completion", &body);
    let (chunks, done) = stream("/completion", body);
    assert!(!done);
    let (last, rest) = chunks.split_last().expect("chunks");
    assert_eq!(last["stop"], true);
    assert_eq!(last["content"], "");
    assert_eq!(last["stop_type"], "limit");
    assert!(rest.iter().all(|c| c["stop"] == false));
    let text: String = rest.iter().filter_map(|c| c["content"].as_str()).collect();
    assert_eq!(whole["content"], text);
    let progress: Vec<&Value> = rest.iter().map(|c| &c["prompt_progress"]).filter(|p| !p.is_null()).collect();
    let (first, end) = (progress[0], progress[progress.len() - 1]);
    assert_eq!(first["processed"], first["cache"]);
    assert_eq!(end["processed"], end["total"]);
}

#[test]
fn stop_strings_never_get_out() {
    let to = shared();
    let body = |stop: Value| json!({"prompt": "The game of", "max_tokens": 40, "seed": 9, "stop": stop});
    let full = ask(to, "/v1/completions", &body(json!([])))["choices"][0]["text"].clone();
    let full = full.as_str().expect("a text");
    let chars: Vec<(usize, char)> = full.char_indices().collect();
    for at in [1, 5, 11, 17] {
        let stop: String = chars[at..at + 4].iter().map(|c| c.1).collect();
        let expected = &full[..full.find(&stop).expect("it is in there")];
        let a = ask(to, "/v1/completions", &body(json!([stop])));
        assert_eq!(a["choices"][0]["text"], expected, "{stop:?}");
        assert_eq!(a["choices"][0]["finish_reason"], "stop");
    }
    let native = json!({"prompt": "The game of", "n_predict": 40, "seed": 9, "stop": full});
    let a = ask(to, "/completion", &native);
    assert_eq!(a["content"], "");
    assert_eq!(a["stop_type"], "word");
    assert_eq!(a["stopping_word"], full);
    let many: Vec<String> = (0..17).map(|i| format!("<{i}>")).collect();
    post(to, "/v1/completions", &body(json!(many))).error(400);
    ask(to, "/v1/completions", &body(json!(many[..16])));
}

#[test]
fn errors_before_the_first_token_have_a_status() {
    let long: Vec<u32> = vec![5; 512];
    let body = json!({"prompt": long, "stream": true});
    let error = post(shared(), "/v1/completions", &body).error(400);
    assert_eq!(error["type"], "exceed_context_size_error");
    assert_eq!(error["n_prompt_tokens"], 512);
    assert_eq!(error["n_ctx"], 512);
    assert_eq!(error["reason"], "context_length_exceeded");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("exceeds the available context size"), "{message}");
}

#[test]
fn the_number_of_tokens() {
    let to = shared();
    let nearly: Vec<u32> = vec![5; 510];
    let a = ask(to, "/completion", &json!({"prompt": nearly, "n_predict": 10, "ignore_eos": true}));
    assert_eq!(a["truncated"], true);
    assert_eq!(a["stop_type"], "limit");
    for n in [0, 1] {
        let a = ask(to, "/v1/completions", &json!({"prompt": "The", "max_tokens": n, "ignore_eos": true}));
        assert_eq!(a["usage"]["completion_tokens"], n);
        assert_eq!(a["choices"][0]["finish_reason"], "length");
        assert_eq!(a["timings"]["predicted_per_second"], 0.0);
    }
}
