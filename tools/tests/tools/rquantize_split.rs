//! `rquantize --split` and `--merge` against the SHA-256 of files that llama-gguf-split wrote, and what they refuse.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value as Json;
use tempfile::TempDir;
use trine_formats::gguf::{Metadata, Value};
use trine_testkit::tool::{refusal, stdout};
use trine_testkit::{gguf, sha256, testdata, trilm};

/// Runs in `dir`; the words are split at spaces.
fn rquantize(dir: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rquantize"));
    let words = words.split_ascii_whitespace();
    command.current_dir(dir).args(words).output().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// A folder with the bundled model as `in.gguf`.
fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::copy(trilm(), dir.path().join("in.gguf")).unwrap();
    dir
}

fn refused(dir: &Path, words: &str) -> String {
    let before = names(dir);
    let error = refusal("rquantize", rquantize(dir, words)).error;
    assert_eq!(names(dir), before, "{words}");
    error
}

/// Lines `SHA-256 NAME OPTIONS`: the options of llama-gguf-split and a file that it wrote with them.
#[test]
fn files_are_those_of_the_reference() {
    let list = fs::read_to_string(testdata("gguf/split.sha256")).unwrap();
    let dir = folder();
    let mut done = String::new();
    let mut left: Vec<String> = Vec::new();
    for line in list.lines() {
        let mut words = line.splitn(3, ' ');
        let (hash, name, options) = (words.next(), words.next(), words.next());
        let (name, options) = (name.unwrap(), options.unwrap());
        if options != done {
            assert_eq!(left, [""; 0], "{done}");
            let out = rquantize(dir.path(), &format!("--dry-run {options}"));
            let plan = stdout(out);
            assert!(plan.contains("would be "), "{plan}");
            let before = names(dir.path());
            let report = stdout(rquantize(dir.path(), options));
            assert_eq!(report, plan.replace("would be ", ""));
            left = names(dir.path());
            left.retain(|n| !before.contains(n));
            done = options.to_owned();
        }
        let bytes = fs::read(dir.path().join(name)).unwrap();
        assert_eq!(Some(sha256(&bytes).as_str()), hash, "{line}");
        left.retain(|n| n != name);
    }
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_set_that_is_merged_has_every_weight_of_the_file_it_was_made_from() {
    let dir = folder();
    stdout(rquantize(dir.path(), "--split-max-tensors 20 in.gguf a"));
    // Any file of the set names it.
    let json = stdout(rquantize(dir.path(), "--merge --json a-00002-of-00003.gguf whole.gguf"));
    let json: Json = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["merged_from"], &json["files"][0]["path"]), (&3.into(), &"whole.gguf".into()));
    let mut inspect = Command::new(env!("CARGO_BIN_EXE_rinspect"));
    inspect.current_dir(dir.path());
    let out = inspect.args(["--json", "--diff", "in.gguf", "whole.gguf"]).output().unwrap();
    let diff: Json = serde_json::from_str(&stdout(out)).unwrap();
    assert_eq!(diff["lossless"], true, "{diff}");
}

#[test]
fn what_cannot_be_split_or_merged() {
    let dir = folder();
    let at = dir.path();
    stdout(rquantize(at, "--split-max-tensors 20 in.gguf a"));
    for (words, told) in [
        ("--split-max-size 1M in.gguf b", "more than the limit of 1000000"),
        ("--split-max-tensors 9 a-00001-of-00003.gguf b", "split already, into 3 files"),
        ("--merge in.gguf out.gguf", "key split.count is missing"),
        ("--merge a-00001-of-00003.gguf a-00002-of-00003.gguf", "also the input"),
        ("--merge a-00001-of-00003.gguf a-00003-of-00003.gguf", "also the input"),
        ("--split in.gguf no/such/folder", "no/such"),
        ("--split in.gguf b Q4_K_M", "--split takes no type"),
        ("--split --pure in.gguf b", "--pure has no meaning beside --split"),
        ("--merge --imatrix x a-00001-of-00003.gguf b", "--imatrix has no meaning"),
        ("--split --widths 3,4 in.gguf b", "has no meaning beside"),
    ] {
        let error = refused(at, words);
        assert!(error.contains(told), "{words}: {error}");
    }
    // An existing file is not written over.
    let error = refused(at, "--merge a-00001-of-00003.gguf in.gguf");
    assert!(error.contains("'in.gguf' exists already"), "{error}");
    // The input under the name of an output is not either.
    fs::rename(at.join("in.gguf"), at.join("c-00001-of-00003.gguf")).unwrap();
    let error = refused(at, "--split-max-tensors 20 c-00001-of-00003.gguf c");
    assert!(error.contains("also the input") || error.contains("c-00002"), "{error}");
    for words in [
        "--split-max-size 5 in.gguf b",
        "--split-max-tensors 0 in.gguf b",
        "--split --merge in.gguf b",
        "--split-max-tensors 3 --split-max-size 3M in.gguf b",
        "--delete-splits --merge in.gguf b",
    ] {
        assert_eq!(rquantize(at, words).status.code(), Some(2), "{words}");
    }
}

#[test]
fn a_file_of_another_alignment_is_refused() {
    let dir = TempDir::new().unwrap();
    let mut meta = Metadata::default();
    meta.set("general.alignment", Value::U32(64));
    fs::write(dir.path().join("in.gguf"), gguf::bytes(&meta, &[])).unwrap();
    let error = refused(dir.path(), "--split in.gguf a");
    assert!(error.starts_with("general.alignment is 64"), "{error}");
}
