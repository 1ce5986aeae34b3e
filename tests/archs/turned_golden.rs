//! Rotated models have the logits of the reference whose products were given rotated inputs: `testdata/archs/rotated.json`.
//!
//! The models are made here and rotated by the quantizer; that the hash of each file is the recorded one proves that it is
//! the file which the reference evaluated.

use std::path::Path;

use serde_json::Value;
use trine::model::{LoadOptions, Weights};
use trine::quant::rotate::{Rotation, Turn};
use trine::quant::{Fallback, Recipe, Target};
use trine_testkit::{gguf, sha256};

use crate::golden::Golden;
use crate::rotated::{grouped, model, tied};
use crate::{TYPES, logits};

/// A model: its name, the listing that it is made from, what is changed there, blocks, and the seed of its signs.
type Case = (&'static str, &'static str, fn(&str) -> String, usize, Option<u64>);

const CASES: &[Case] = &[
    ("llama-64", "llama-dense", str::to_owned, 64, Some(1)),
    ("llama-128", "llama-dense", str::to_owned, 128, None),
    ("llama-512", "llama-dense", wide, 512, Some(3)),
    ("llama-1024", "llama-dense", wide, 1024, Some(4)),
    ("llama-2048", "llama-dense", wide, 2048, None),
    ("llama-tied", "llama-dense", tied, 64, Some(5)),
    ("qwen3-256", "qwen3-dense", str::to_owned, 256, Some(6)),
    ("qwen3moe-128", "qwen3moe-moe", str::to_owned, 128, Some(7)),
    ("qwen35-64", "qwen35-dense", grouped, 64, Some(8)),
    ("qwen35moe-128", "qwen35moe-moe", str::to_owned, 128, Some(9)),
    ("qwen3next-64", "qwen3next-moe", str::to_owned, 64, Some(10)),
];

/// A line of `llama-dense` with a residual stream of 1024 and a feed-forward network of 2048.
fn wide(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let kind = |name: &str| name.rsplit('.').nth(1).map(str::to_owned);
    let (stream, hidden) = ("1024", "2048");
    match &words[..] {
        ["key", key @ "llama.embedding_length", ty, _] => format!("key {key} {ty} {stream}"),
        ["key", key @ "llama.feed_forward_length", ty, _] => format!("key {key} {ty} {hidden}"),
        ["tensor", name, dims @ ..] if !dims.contains(&"1") && *name != "rope_freqs.weight" => {
            let dims: Vec<&str> = match (kind(name).as_deref(), dims) {
                (Some("attn_q" | "attn_k" | "attn_v"), [_, rows]) => vec![stream, rows],
                (Some("attn_q" | "attn_k" | "attn_v"), dims) => dims.to_vec(),
                (Some("attn_output"), [columns, _]) => vec![columns, stream],
                (Some("ffn_gate" | "ffn_up"), [_, _]) => vec![stream, hidden],
                (Some("ffn_gate" | "ffn_up"), _) => vec![hidden],
                (Some("ffn_down"), [_, _]) => vec![hidden, stream],
                (_, [_, rows @ ..]) => [stream].iter().chain(rows).copied().collect(),
                (_, []) => Vec::new(),
            };
            format!("tensor {name} {}", dims.join(" "))
        }
        _ => line.to_owned(),
    }
}

/// Writes the rotated model of a case in every type.
fn write(case: &Case, dir: &Path) {
    let (_, listing, change, block, signs) = *case;
    let turn = Turn::Rotate { block, signs };
    let rotation = Rotation { turn, ty: None, partly: true };
    let source = dir.join("F32.gguf");
    let plain = model(listing, change);
    trine::quantize(&plain, &Recipe::new(Target::Turned(rotation)), &source).unwrap_or_else(|e| panic!("{e}"));
    for ty in &TYPES[1..] {
        let recipe = Recipe { fallback: Fallback::Always, ..Recipe::new(Target::parse(ty).expect("a type")) };
        let out = dir.join(format!("{ty}.gguf"));
        trine::quantize(&gguf::open(&source), &recipe, &out).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn logits_are_those_of_rotated_products() {
    let json = trine_testkit::golden::json("archs/rotated.json");
    for case in CASES {
        let recorded = &json["models"][case.0];
        let dir = trine_testkit::folder();
        write(case, dir.path());
        for ty in TYPES {
            let bytes = trine_testkit::read(&dir.path().join(format!("{ty}.gguf")));
            let form = &recorded[ty];
            assert_eq!(form["file"], sha256(&bytes), "{} {ty}: the file", case.0);
            let model = Weights::load(&gguf::model(bytes), &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
            let tokens = json["tokens"].as_array().expect("tokens").iter();
            let tokens = tokens.map(|id| id.as_u64().expect("an id") as u32).collect();
            let got = logits(&model, &Golden { tokens, positions: 1, forms: Default::default() });
            let want: Vec<&str> = form["logits"].as_array().expect("hashes").iter().filter_map(Value::as_str).collect();
            assert_eq!(got, want, "{} {ty}", case.0);
        }
    }
}

/// Writes the models to the folder `TRINE_ROTATED`, for the reference to evaluate.
#[test]
#[ignore = "writes files for the reference"]
fn write_models() {
    let dir = std::env::var_os("TRINE_ROTATED").expect("TRINE_ROTATED=FOLDER");
    for case in CASES {
        let folder = Path::new(&dir).join(case.0);
        std::fs::create_dir_all(&folder).expect("a folder");
        write(case, &folder);
    }
}
