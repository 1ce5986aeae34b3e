//! Heads for multi-token prediction have the reference's logits, to the last bit, and drafts by them change no text.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use trine::Isa;
use trine::model::{LoadOptions, Model};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions, Sink};
use trine_testkit::archs::{Listing, with_heads};
use trine_testkit::sha256;

use crate::{TYPES, quantize};

macro_rules! models {
    ($($test:ident $name:literal,)*) => {
        /// All models with heads.
        const HEADS: &[&str] = &[$($name),*];
        $(#[test] fn $test() { check($name) })*
    };
}

models! {
    glm4moe "glm4moe",
    qwen35 "qwen35",
    qwen35_ends "qwen35-ends",
    qwen35moe "qwen35moe",
    qwen3next "qwen3next",
}

fn listing(name: &str) -> Listing {
    trine_testkit::archs::listing(&with_heads(name))
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/mtp.json")
}

/// The tokens that the reference evaluated.
fn tokens() -> Vec<u32> {
    let json: Value = trine_testkit::golden::json("archs/golden.json");
    serde_json::from_value(json["tokens"]["long"].clone()).expect("ids")
}

#[test]
fn every_golden_head_is_tested() {
    let golden = golden();
    let names: BTreeSet<&str> = golden["models"].as_object().expect("models").keys().map(String::as_str).collect();
    assert_eq!(names, HEADS.iter().copied().collect());
}

/// Writes the models for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_models_with_heads() {
    let dir = std::env::var_os("TRINE_ARCHS").expect("TRINE_ARCHS names no directory");
    for name in HEADS {
        fs::write(Path::new(&dir).join(format!("{name}.gguf")), listing(name).file()).expect("a writable directory");
    }
}

/// A model of `bytes` with its head.
fn load(bytes: Vec<u8>, isa: Isa) -> Model {
    let options = LoadOptions { isa, mtp: true, ..LoadOptions::default() };
    Model::load(&trine_testkit::gguf::model(bytes), &options).expect("a model with a head")
}

/// All that a step makes of one segment.
#[derive(Default)]
struct Rows {
    logits: Vec<Vec<f32>>,
    states: Vec<f32>,
}

impl Sink for Rows {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, logits: &[f32]) {
        self.logits.push(logits.to_vec());
    }

    fn hidden(&mut self, _: usize, _: usize, state: &[f32]) {
        self.states.extend_from_slice(state);
    }
}

/// The logits of the head of `model` behind every token, and of `drafted` more behind the last one, from its own states.
fn head_logits(model: &Model, tokens: &[u32], drafted: usize, pool: &Pool, n_ubatch: usize) -> Vec<Vec<f32>> {
    let options = SessionOptions { n_ctx: tokens.len() + drafted, n_ubatch };
    let (mut text, mut of_text) = (Session::new(model, pool, options), Rows::default());
    text.eval_into(tokens, tokens.len(), &mut of_text).expect("room");
    let [head] = model.mtp_heads() else { panic!("one head") };
    let n = head.reads_hidden();
    let before = [&vec![0.0; n], &of_text.states[..(tokens.len() - 1) * n]].concat();
    let (mut head, mut rows) = (Session::new(head, pool, options), Rows::default());
    head.eval_behind(&before, tokens, 0, &mut rows).expect("room");
    let mut logits = rows.logits;
    let mut state = rows.states[rows.states.len() - n..].to_vec();
    for _ in 0..drafted {
        let last = logits.last().expect("a row");
        let likeliest = (0..last.len()).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).expect("a token");
        let mut row = Rows::default();
        head.eval_behind(&state, &[likeliest as u32], 0, &mut row).expect("room");
        state = row.states;
        logits.append(&mut row.logits);
    }
    logits
}

/// The hashes of `logits` as the golden file has them.
fn hashes(logits: &[Vec<f32>], tokens: usize, positions: usize) -> Vec<String> {
    let bytes = |rows: &[Vec<f32>]| -> Vec<u8> { rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect() };
    let (of_text, drafted) = logits.split_at(tokens);
    let groups = of_text.chunks(positions).chain(drafted.chunks(1));
    groups.map(|rows| sha256(&bytes(rows))[..16].to_owned()).collect()
}

#[track_caller]
fn check(name: &str) {
    let (golden, tokens) = (golden(), tokens());
    let number = |key: &str| golden[key].as_u64().expect("a number") as usize;
    let (positions, drafted) = (number("positions"), number("drafted"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("F32.gguf");
    fs::write(&source, listing(name).file()).expect("room for the model");
    // in the short form one of the three types that are made of the file, another one for each name
    let turn = name.bytes().map(usize::from).sum::<usize>() % (TYPES.len() - 1) + 1;
    for (i, ty) in TYPES.into_iter().enumerate() {
        if i != 0 && i != turn && !trine_testkit::is_long() {
            continue;
        }
        let form = &golden["models"][name][ty];
        let path = dir.path().join(format!("{ty}.gguf"));
        if ty != TYPES[0] {
            quantize(&source, ty, &path);
        }
        let bytes = trine_testkit::read(&path);
        assert_eq!(sha256(&bytes), form["file"].as_str().expect("a hash"), "{name} {ty}: the file");
        let want: Vec<String> = serde_json::from_value(form["logits"].clone()).expect("hashes");
        // what decides no bit is tried in one type
        let ways = [(Isa::detect(), 2, 512), (Isa::detect(), 1, 7), (Isa::scalar(), 2, 512)];
        for (isa, threads, n_ubatch) in ways.into_iter().take(if i == turn { 3 } else { 1 }) {
            let pool = Pool::new(threads).expect("threads");
            let model = load(bytes.clone(), isa);
            let got = head_logits(&model, &tokens, drafted, &pool, n_ubatch);
            let got = hashes(&got, tokens.len(), positions);
            let wrong: Vec<usize> = (0..want.len()).filter(|&i| got.get(i) != Some(&want[i])).collect();
            assert!(
                wrong.is_empty(),
                "{name} {ty} {isa:?}, {threads} threads, {n_ubatch} rows: groups {wrong:?} differ"
            );
        }
    }
}
