//! Keys and tensors of small models changed one at a time: each file has the reference's logits, to the last bit.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use trine::model::{LoadOptions, Model};
use trine_testkit::archs::Listing;
use trine_testkit::sha256;

use crate::golden::Golden;
use crate::{logits, write_models};

/// The files of `testdata/archs/changed.json`: by name the model that is changed, how, and what the reference made of it.
fn changed() -> (Vec<u32>, Vec<(String, Value)>) {
    let json: Value = trine_testkit::golden::json("archs/changed.json");
    let tokens = trine_testkit::golden::json("archs/golden.json")["tokens"]["short"].clone();
    let tokens = serde_json::from_value(tokens).expect("tokens");
    let files = json["files"].as_object().expect("files").clone();
    (tokens, files.into_iter().collect())
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
    let (_, files) = changed();
    write_models(files.iter().map(|(name, entry)| (&**name, file(entry))));
}

#[test]
fn files_have_the_logits_of_the_reference() {
    let (tokens, files) = changed();
    let golden = Golden { positions: tokens.len(), tokens, forms: BTreeMap::new() };
    let isa = trine::Isa::from_env().expect("a set that the processor has");
    let mut differences = Vec::new();
    for (name, entry) in files {
        let bytes = file(&entry);
        assert_eq!(entry["file"], sha256(&bytes), "{name}: the file");
        let model = Model::load(&trine_testkit::gguf::model(bytes), &LoadOptions { isa, ..LoadOptions::default() });
        match model.map(|model| logits(&model, &golden)) {
            Ok(own) if entry["logits"].as_str() == Some(&*own.concat()) => {}
            Ok(_) => differences.push(format!("{name}: other logits")),
            Err(refusal) => differences.push(format!("{name}: {refusal}")),
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
