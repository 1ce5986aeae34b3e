//! Models that embed and rank: the library's bits, whatever shares the step.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use trine::{EmbedOptions, Model, RankOptions};
use trine_testkit::archs::{Listing, listing, of_vectors};

use crate::client::{ask, get, post};
use crate::local::{Local, start_with};

/// Writes the small random model `name` into a folder, and starts a server of it.
fn serving(name: &str, folder: &Path, more: &[&str]) -> (Model, Local) {
    serving_of(&listing(&of_vectors(name)), folder, more)
}

fn serving_of(listing: &Listing, folder: &Path, more: &[&str]) -> (Model, Local) {
    let path = folder.join("model.gguf");
    fs::write(&path, listing.file()).expect("room for the model");
    // The server first: it says how many threads there are.
    let server = start_with(path.to_str().expect("a path"), more);
    (crate::local::open(&path), server)
}

const QUERY: &str = "who played chess?";
const DOCUMENTS: [&str; 5] = [
    "the cat sat on the mat",
    "chess is a game",
    "",
    "two players played chess, where? on a mat. what question is played by the players of the game",
    "chess is a game",
];

/// Ranks of the documents by the library, the best first.
fn expected(model: &Model) -> Vec<(u64, f32)> {
    let ranks = model.rank(QUERY, &DOCUMENTS, &RankOptions::default()).expect("ranks");
    let mut all: Vec<(u64, f32)> = (0..).zip(ranks).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

fn results(list: &Value, score: &str) -> Vec<(u64, f32)> {
    let one = |v: &Value| (v["index"].as_u64().expect("an index"), v[score].as_f64().expect("a number") as f32);
    list.as_array().expect("results").iter().map(one).collect()
}

#[test]
fn ranks_have_the_librarys_bits_in_all_shapes() {
    for name in ["bert-rank-plain", "qwen3-rank", "modern-bert-rank"] {
        let folder = trine_testkit::folder();
        let (model, server) = serving(name, folder.path(), &[]);
        let expected = expected(&model);
        let body = json!({"model": "m", "query": QUERY, "documents": DOCUMENTS});
        for route in ["/v1/rerank", "/v1/reranking", "/rerank", "/reranking"] {
            let answer = ask(server.to, route, &body);
            assert_eq!(results(&answer["results"], "relevance_score"), expected, "{name} {route}");
            assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("m")));
            let tokens: usize =
                DOCUMENTS.iter().map(|text| model.rank_prompt(QUERY, text).expect("a prompt").len()).sum();
            assert_eq!(answer["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
        }
        let best = json!({"query": QUERY, "documents": DOCUMENTS, "top_n": 2, "return_documents": true});
        let answer = ask(server.to, "/v1/rerank", &best);
        assert_eq!(results(&answer["results"], "relevance_score"), expected[..2]);
        let first = DOCUMENTS[expected[0].0 as usize];
        assert_eq!(answer["results"][0]["document"]["text"], first);
        let bare = json!({"query": QUERY, "texts": DOCUMENTS, "return_text": true});
        let answer = ask(server.to, "/rerank", &bare);
        assert_eq!(results(&answer, "score"), expected);
        assert_eq!(answer[0]["text"], first);
    }
}

/// The message of a refusal.
#[track_caller]
fn refused(server: &Local, route: &str, body: &Value) -> String {
    let error = post(server.to, route, body).error(400);
    error["message"].as_str().expect("a message").to_owned()
}

#[test]
fn what_cannot_be_ranked_is_refused_by_field() {
    let folder = trine_testkit::folder();
    let (_, server) = serving("bert-rank-plain", folder.path(), &[]);
    let long = "chess ".repeat(600);
    for (body, what) in [
        (json!({"documents": ["a"]}), "query"),
        (json!({"query": 1, "documents": ["a"]}), "query"),
        (json!({"query": "a"}), "documents"),
        (json!({"query": "a", "documents": []}), "documents"),
        (json!({"query": "a", "documents": [1]}), "documents"),
        (json!({"query": "a", "documents": ["b"], "top_n": -1}), "top_n"),
        (json!({"query": "a", "documents": [long]}), "exceeds the available context size"),
    ] {
        let message = refused(&server, "/v1/rerank", &body);
        assert!(message.contains(what) && !message.contains('\n'), "{message}");
    }
    assert_eq!(ask(server.to, "/api/show", &json!({"model": "model.gguf"}))["capabilities"], json!(["embedding"]));
    assert_eq!(get(server.to, "/v1/models").json()["models"][0]["capabilities"], json!(["embedding"]));
    let message = refused(&server, "/v1/completions", &json!({"prompt": "chess"}));
    assert!(message.contains("makes vectors of texts and no logits"), "{message}");
    let embedder = trine_testkit::folder();
    let path = embedder.path().join("bert.gguf");
    fs::write(&path, listing(&of_vectors("bert")).file()).expect("room for the model");
    let other = start_with(path.to_str().expect("a path"), &[]);
    let message = refused(&other, "/v1/rerank", &json!({"query": "a", "documents": ["b"]}));
    assert!(message.starts_with("the model does not rank texts"), "{message}");
}

/// A small Qwen 3 as BitNet's embeddings are: a norm before every projection, the state of the last token.
fn bitnet() -> Listing {
    let qwen = fs::read_to_string(trine_testkit::testdata("archs/qwen3-long.txt")).expect("a listing");
    let norm = |(projection, width): &(&str, usize)| format!("tensor blk.{{0..3}}.{projection}_norm_in.weight {width}");
    let widths = [
        ("attn_q", 256),
        ("attn_k", 256),
        ("attn_v", 256),
        ("attn_output", 320),
        ("ffn_gate", 256),
        ("ffn_up", 256),
        ("ffn_down", 384),
    ];
    let norms: Vec<String> = widths.iter().map(norm).collect();
    let key = "key tokenizer.ggml.model";
    let stated = qwen.replace(key, &format!("key qwen3.pooling_type u32 3\n{key}"));
    Listing::parse(&format!("{stated}\n{}", norms.join("\n")))
}

#[test]
fn models_make_the_librarys_vectors_side_by_side() {
    let encoders = ["bert", "gemma-embedding-dense", "jina-bert-v2"].map(|name| listing(&of_vectors(name)));
    for listing in encoders.into_iter().chain([bitnet()]) {
        let folder = trine_testkit::folder();
        let name = listing.architecture();
        let (model, server) = serving_of(&listing, folder.path(), &["--prefill-chunk", "16", "--parallel", "4"]);
        // Shorter and longer than a chunk, which does not count where texts are read whole.
        let texts: Vec<Vec<u32>> = [1, 5, 30, 200, 16, 17, 90, 3].map(|n| (0..n).map(|i| i * i % 160).collect()).into();
        let expected: Vec<Vec<u32>> = texts
            .iter()
            .map(|text| {
                let vector = model.embed(text, &EmbedOptions::default()).expect("a vector");
                vector.iter().map(|x| x.to_bits()).collect()
            })
            .collect();
        for _ in 0..2 {
            let answer = ask(server.to, "/v1/embeddings", &json!({"input": texts}));
            let data = answer["data"].as_array().expect("vectors");
            let numbers = |v: &Value| -> Vec<u32> {
                let list = v["embedding"].as_array().expect("numbers").iter();
                list.map(|x| (x.as_f64().expect("a number") as f32).to_bits()).collect()
            };
            assert_eq!(data.iter().map(numbers).collect::<Vec<_>>(), expected, "{name}");
        }
    }
}
