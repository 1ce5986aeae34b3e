//! Vectors of texts: the library's bits, whatever shares the step.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use trine::{EmbedOptions, Model, Pooling, Scale};

use crate::client::{ask, get, post};
use crate::local::{shared, start};

fn model() -> Model {
    crate::local::open(trine_testkit::trilm())
}

/// Texts of many lengths; some begin alike.
fn texts() -> Vec<String> {
    let word = |i: usize| ["game", "of", "chess", "the", "a", "played"][i * i % 6];
    let text = |n: usize| (0..n).map(word).collect::<Vec<_>>().join(" ");
    [1, 3, 40, 41, 130, 200, 7].map(text).to_vec()
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|x| x.to_bits()).collect()
}

/// The numbers of a vector, of JSON or of base64.
fn numbers(value: &Value) -> Vec<f32> {
    match value {
        Value::String(text) => {
            let bytes = BASE64.decode(text).expect("base64");
            let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            bytes.chunks_exact(4).map(number).collect()
        }
        list => {
            let list = list.as_array().expect("an array");
            list.iter().map(|x| x.as_f64().expect("a number") as f32).collect()
        }
    }
}

fn vectors(to: SocketAddr, body: &Value) -> Vec<Vec<u32>> {
    let answer = ask(to, "/v1/embeddings", body);
    assert_eq!(answer["object"], "list");
    let data = answer["data"].as_array().expect("vectors").clone();
    for (i, one) in data.iter().enumerate() {
        assert_eq!((one["index"].as_u64(), &one["object"]), (Some(i as u64), &json!("embedding")));
    }
    data.iter().map(|v| bits(&numbers(&v["embedding"]))).collect()
}

fn expected(model: &Model, options: &EmbedOptions) -> Vec<Vec<u32>> {
    let one = |text: &String| {
        let tokens = model.tokenizer().encode(text, true, true).expect("tokens");
        bits(&model.embed(&tokens, options).expect("a vector"))
    };
    texts().iter().map(one).collect()
}

#[test]
fn they_have_the_librarys_bits_under_load_as_well() {
    let model = model();
    let poolings = [Pooling::Mean, Pooling::Cls, Pooling::Last];
    let expected = poolings.map(|pooling| {
        let options = EmbedOptions { pooling: Some(pooling), ..EmbedOptions::default() };
        expected(&model, &options)
    });
    assert!(expected[0] != expected[1] && expected[1] != expected[2]);
    // Chunks of prompts by the default, and of seven tokens; memory for all, and for a few.
    for options in [&[][..], &["--prefill-chunk", "7"], &["--kv-memory", "1M"]] {
        let server = start(&[&["--metrics"], options].concat());
        let to = server.to;
        std::thread::scope(|s| {
            for seed in 0..3 {
                let body = json!({"prompt": "The game of", "max_tokens": 120, "seed": seed, "ignore_eos": true});
                s.spawn(move || ask(to, "/v1/completions", &body));
            }
            for format in ["float", "base64"] {
                for (pooling, expected) in poolings.iter().zip(&expected) {
                    let body = json!({"input": texts(), "pooling": pooling.name(), "encoding_format": format});
                    s.spawn(move || {
                        for round in 0..2 {
                            let got = vectors(to, &body);
                            assert_eq!(&got, expected, "{options:?}, round {round}, {pooling:?}");
                        }
                    });
                }
            }
        });
        // The state of the last token needs no other, so that what is known of the prompt need not be read again.
        let page = get(to, "/metrics").text();
        let cached =
            page.lines().find_map(|l| l.strip_prefix("llamacpp:prompt_tokens_cached_total ")).expect("a counter");
        assert_ne!(cached, "0");
    }
}

#[test]
fn shapes_of_the_answer() {
    let to = shared();
    let body = json!({"input": "The game of chess", "model": "any"});
    let answer = ask(to, "/v1/embeddings", &body);
    let tokens = ask(to, "/tokenize", &json!({"content": "The game of chess", "add_special": true}));
    let tokens = tokens["tokens"].clone();
    let n = tokens.as_array().expect("tokens").len();
    assert_eq!(answer["usage"], json!({"prompt_tokens": n, "total_tokens": n}));
    assert_eq!(answer["model"], "any");
    assert_eq!(answer["trine"], json!({"bits": null, "pooling": "mean"}));
    let of = |input: Value| vectors(to, &json!({ "input": input }));
    let one = of(json!("The game of chess"));
    assert_eq!(of(tokens.clone()), one);
    assert_eq!(of(json!([tokens, "The game of chess"])), [&one[..], &one[..]].concat());
    let parts = json!({"content": [{"type": "text", "text": "The game "}, {"type": "text", "text": "of chess"}]});
    assert_eq!(of(json!([parts, {"prompt_string": "The game of chess"}])), [&one[..], &one[..]].concat());
    // llama-server's own shape: a list of lists
    for (path, body) in [
        ("/embedding", json!({"content": "The game of chess"})),
        ("/embeddings", json!({"input": ["The game of chess"]})),
        ("/v1/embeddings", json!({"content": "The game of chess"})),
    ] {
        let answer = ask(to, path, &body);
        assert_eq!(answer[0]["index"], 0);
        assert_eq!(bits(&numbers(&answer[0]["embedding"][0])), one[0], "{path}");
    }
    // A client that sends nothing it does not have to.
    let squares = one[0].iter().map(|b| {
        let x = f64::from(f32::from_bits(*b));
        x * x
    });
    let length: f64 = squares.sum();
    assert!((length - 1.0).abs() < 1e-6);
}

#[test]
fn scales_and_the_servers_pooling() {
    let model = model();
    let server = start(&["--pooling", "last"]);
    for (number, scale) in [(-1, Scale::None), (0, Scale::Largest), (2, Scale::Length)] {
        let options = EmbedOptions { pooling: Some(Pooling::Last), scale, ..EmbedOptions::default() };
        let body = json!({"input": texts(), "embd_normalize": number});
        assert_eq!(vectors(server.to, &body), expected(&model, &options), "{number}");
    }
}

#[test]
fn a_whole_context_and_more_inputs_than_may_wait() {
    let server = start(&["--parallel", "2", "--max-queue", "1"]);
    let n_ctx = model().n_ctx_train();
    assert_eq!(vectors(server.to, &json!({"input": vec![7; n_ctx]})).len(), 1);
    let error = post(server.to, "/v1/embeddings", &json!({"input": vec![7; n_ctx + 1]})).error(400);
    assert_eq!(error["type"], "exceed_context_size_error");
    let all = vectors(server.to, &json!({"input": vec!["The game"; 40]}));
    assert!(all.len() == 40 && all.iter().all(|v| *v == all[0]));
}

#[test]
fn every_token_may_have_a_vector_of_its_own() {
    let model = model();
    let text = "The game of chess is played";
    let tokens = model.tokenizer().encode(text, true, true).expect("tokens");
    let options = EmbedOptions { pooling: Some(Pooling::Last), scale: Scale::None, ..EmbedOptions::default() };
    // The state of a token sees those before it and no other.
    let vector = |n: usize| bits(&model.embed(&tokens[..n], &options).expect("a vector"));
    let expected: Vec<Vec<u32>> = (1..=tokens.len()).map(vector).collect();
    let read = |answer: &Value| -> Vec<Vec<u32>> {
        let states = answer["embedding"].as_array().expect("vectors");
        states.iter().map(|v| bits(&numbers(v))).collect()
    };
    let body = json!({"input": [text, "The"], "pooling": "none"});
    let answer = ask(shared(), "/embedding", &body);
    assert_eq!(read(&answer[0]), expected);
    assert_eq!(answer[1]["index"], 1);
    // The server's default, and chunks of three tokens.
    let server = start(&["--pooling", "none", "--prefill-chunk", "3"]);
    let answer = ask(server.to, "/embeddings", &json!({"content": text}));
    assert_eq!(read(&answer[0]), expected);
    for (to, body) in [(server.to, json!({"input": text})), (shared(), json!({"input": text, "pooling": "none"}))] {
        let error = post(to, "/v1/embeddings", &body).error(400);
        assert!(error["message"].as_str().is_some_and(|m| m.contains("'pooling'")));
    }
    let one = ask(server.to, "/v1/embeddings", &json!({"input": text, "pooling": "mean"}));
    assert_eq!(one["trine"]["pooling"], "mean");
}

#[test]
fn mistakes_are_named() {
    for (field, value) in [
        ("input", json!([])),
        ("input", json!(7)),
        ("input", json!([[]])),
        ("input", json!({"content": "text"})),
        ("input", json!({"content": [{"type": "image_url", "image_url": {"url": "data:,"}}]})),
        ("input", json!([1.5])),
        ("input", json!(vec!["x"; 2049])),
        ("encoding_format", json!("int8")),
        ("encoding_format", json!(1)),
        ("dimensions", json!(0)),
        ("pooling", json!("none")),
        ("pooling", json!("rank")),
        ("embd_normalize", json!(3)),
        ("model", json!(1)),
    ] {
        let mut body = json!({"input": "The"});
        body[field] = value;
        let error = post(shared(), "/v1/embeddings", &body).error(400);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("'{field}'")), "{field}: {message}");
    }
    let error = post(shared(), "/v1/embeddings", &json!({})).error(400);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("'input'")));
    let outside = json!({"input": [1_000_000]});
    let error = post(shared(), "/v1/embeddings", &outside).error(400);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("vocabulary")));
}
