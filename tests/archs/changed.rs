//! Keys and tensors of small models changed one at a time: each file has the reference's logits, to the last bit.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use trine::model::{LoadOptions, Weights};
use trine_testkit::archs::Listing;
use trine_testkit::sha256;

use crate::golden::Golden;
use crate::{logits, write_models};

/// Files of `testdata/archs/changed.json`, those of a `list`: by name the model that is changed, how, and what the
/// reference made of it.
fn changed(list: &str) -> Vec<(String, Value)> {
    let json: Value = trine_testkit::golden::json("archs/changed.json");
    let files = json[list].as_object().expect("files").clone();
    files.into_iter().collect()
}

/// The file of an entry: lines of a model's listing that begin with a text have another end, or are left out where that is
/// nothing, and lines are added behind.
fn file(entry: &Value) -> Vec<u8> {
    let name = entry["model"].as_str().expect("a model");
    let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
    let text = fs::read_to_string(path).expect("a listing");
    let ends: BTreeMap<String, Option<String>> = serde_json::from_value(entry["lines"].clone()).expect("lines");
    let mut met = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some((begin, end)) = ends.iter().find(|(begin, _)| line.starts_with(&format!("{begin} "))) else {
            lines.push(line.to_owned());
            continue;
        };
        met.push(begin);
        lines.extend(end.iter().map(|end| format!("{begin} {end}")));
    }
    for (begin, end) in ends.iter().filter(|(begin, _)| !met.contains(begin)) {
        let end = end.as_ref().unwrap_or_else(|| panic!("{name} has no {begin}"));
        lines.push(format!("{begin} {end}"));
    }
    Listing::parse(&lines.join("\n")).file()
}

/// Writes the files for the reference to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_changed_models() {
    let files = [changed("files"), changed("refused")].concat();
    write_models(files.iter().map(|(name, entry)| (&**name, file(entry))));
}

#[test]
fn files_have_the_logits_of_the_reference() {
    let tokens = trine_testkit::golden::json("archs/golden.json")["tokens"]["short"].clone();
    let tokens: Vec<u32> = serde_json::from_value(tokens).expect("tokens");
    let golden = Golden { positions: tokens.len(), tokens, forms: BTreeMap::new() };
    let isa = trine::Isa::from_env().expect("a set that the processor has");
    let mut differences = Vec::new();
    for (name, entry) in changed("files") {
        let bytes = file(&entry);
        assert_eq!(entry["file"], sha256(&bytes), "{name}: the file");
        let model = Weights::load(&trine_testkit::gguf::model(bytes), &LoadOptions { isa, ..LoadOptions::default() });
        match model.map(|model| logits(&model, &golden)) {
            Ok(own) if entry["logits"].as_str() == Some(&*own.concat()) => {}
            Ok(_) => differences.push(format!("{name}: other logits")),
            Err(refusal) => differences.push(format!("{name}: {refusal}")),
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The reference loads none of them, or cannot evaluate them.
#[test]
fn files_that_the_reference_refuses_are_refused() {
    for (name, entry) in changed("refused") {
        let bytes = file(&entry);
        assert_eq!(entry["file"], sha256(&bytes), "{name}: the file");
        let model = Weights::load(&trine_testkit::gguf::model(bytes), &LoadOptions::default());
        let text = model.err().unwrap_or_else(|| panic!("{name} is not refused")).to_string();
        assert!(text.contains(entry["text"].as_str().expect("a text")), "{name}: {text}");
    }
}
