//! EAGLE-3 drafters have the reference's logits, to the last bit, and drafts by them change no text.

use std::fs;

use serde_json::Value;
use trine::{DraftSource, Isa};
use trine_testkit::golden::long_tokens;
use trine_testkit::sha256;

use crate::drafters::{Drafters, drafted, hash};
use crate::{TYPES, assert_all_tested, quantize};

const EAGLE3: Drafters = Drafters { kind: "eagle3", model: "llama-long", source: DraftSource::Eagle3 };
/// Drafters from the output of the last block.
const LAST: Drafters = Drafters { model: "gemma4-long", ..EAGLE3 };
const STREAM: Drafters = Drafters { model: "models/gpt-oss", ..EAGLE3 };

/// The drafters of the model of the one of this name.
fn of(name: &str) -> &'static Drafters {
    match name {
        "eagle3-last" => &LAST,
        "eagle3-stream" => &STREAM,
        _ => &EAGLE3,
    }
}

models! {
    /// All drafters.
    DRAFTERS:
    eagle3 "eagle3",
    eagle3_plain "eagle3-plain",
    eagle3_last "eagle3-last",
    eagle3_stream "eagle3-stream",
}

fn golden() -> Value {
    trine_testkit::golden::json("archs/eagle3.json")
}

#[test]
fn every_golden_drafter_is_tested() {
    assert_all_tested(&golden(), DRAFTERS);
}

/// Writes the drafters and the model for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_drafters() {
    DRAFTERS.iter().for_each(|name| of(name).write(&[*name]));
}

#[track_caller]
fn check(name: &str) {
    let (golden, tokens) = (golden(), long_tokens());
    let number = |key: &str| golden[key].as_u64().expect("a number") as usize;
    let (positions, n_drafted) = (number("positions"), number("drafted"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("F32.gguf");
    fs::write(&source, of(name).file(name)).expect("room for the model");
    for ty in TYPES {
        let form = &golden["models"][name][ty];
        let path = dir.path().join(format!("{ty}.gguf"));
        if ty != TYPES[0] {
            quantize(&source, ty, &path);
        }
        let bytes = trine_testkit::read(&path);
        assert_eq!(sha256(&bytes), form["file"].as_str().expect("a hash"), "{name} {ty}: the file");
        let want: Vec<String> = serde_json::from_value(form["logits"].clone()).expect("hashes");
        let best = Isa::from_env().expect("a set that the processor has");
        for (isa, threads, step) in [(best, 2, 512), (Isa::scalar(), 1, 7)] {
            let model = of(name).open(&bytes, isa, threads);
            let of_pair =
                |at: usize| drafted((&DraftSource::Eagle3, &model), &tokens[..at], Some(tokens[at]), 1, step).remove(0);
            // one group of pairs, another one for each way, and all drafted rows
            let group = if step == 7 { 1 } else { want.len() - n_drafted - 1 };
            let pairs = group * positions..((group + 1) * positions).min(tokens.len() - 1);
            let rows: Vec<Vec<f32>> = pairs.map(|pair| of_pair(pair + 1)).collect();
            assert_eq!(hash(&rows), want[group], "{name} {ty} {isa:?}: group {group}");
            let rows = drafted((&DraftSource::Eagle3, &model), &tokens, None, n_drafted, step);
            let got: Vec<String> = rows.chunks(1).map(hash).collect();
            assert_eq!(got, want[want.len() - n_drafted..], "{name} {ty} {isa:?}: drafted rows");
        }
    }
}

#[test]
fn drafts_by_drafters_change_no_text() {
    DRAFTERS.iter().for_each(|name| of(name).change_no_text(&[*name]));
}

#[test]
fn damaged_drafters_are_refused_in_one_line() {
    let refused = |name: &str, from: &str, to: &str| EAGLE3.refused(name, from, to);
    let far = refused("eagle3", "target_layers [i32] 2 0 1", "target_layers [i32] 4 0 1");
    assert!(far.contains("it reads the input of block 4, and this model has 3"), "{far}");
    let last = refused("eagle3", "target_layers [i32] 2 0 1", "target_layers [i32] 3 0 1");
    assert!(last.contains("llama.cpp gives of no model of architecture 'llama'"), "{last}");
    let few = refused("eagle3", "target_layers [i32] 2 0 1", "target_layers [i32] 2 0");
    assert!(few.contains("eagle3.target_layers has 2 entries, it must have 3"), "{few}");
    let width = refused("eagle3", "target_hidden_size u32 256", "target_hidden_size u32 128");
    assert!(width.contains("a model of 128 hidden numbers, and this one has 256"), "{width}");
    let tokens = refused("eagle3", "places d2t 160 64", "places d2t 400 64");
    assert!(tokens.contains("d2t") && tokens.contains("tokens of a vocabulary of 160"), "{tokens}");
    let lacking = refused("eagle3", "tensor fc.weight 768 256", "");
    assert!(lacking.contains("fc.weight is missing"), "{lacking}");
    let norm = refused("eagle3-plain", "tensor blk.0.attn_norm_2.weight 256", "");
    assert!(norm.contains("blk.0.attn_norm_2.weight is missing"), "{norm}");
    let other = refused("eagle3", "general.architecture str eagle3", "general.architecture str llama");
    assert!(other.contains("it is of architecture 'llama'"), "{other}");
}

#[test]
fn a_drafter_that_was_not_loaded_is_refused() {
    let refused = EAGLE3.refused_source(None);
    assert!(refused.contains("no drafter was loaded"), "{refused}");
}
