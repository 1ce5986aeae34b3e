//! `rquantize --rotate` and `--unrotate`: a rotated model writes what it did, and what they refuse.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value as Json;
use tempfile::TempDir;
use trine_testkit::tool::{command, only_error, stdout};
use trine_testkit::{gguf, trilm};

/// Runs in `dir`; the words are split at spaces.
fn rquantize(dir: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rquantize"));
    command.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap()
}

/// A folder with the bundled model as `in.gguf`.
fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::copy(trilm(), dir.path().join("in.gguf")).unwrap();
    dir
}

fn text_of(dir: &Path, model: &str) -> String {
    let mut command = command(env!("CARGO_BIN_EXE_rgen"));
    let words = ["-m", model, "-p", "The game", "-n", "24", "--temp", "0", "-no-cnv"];
    stdout(command.current_dir(dir).args(words).output().unwrap())
}

#[test]
fn a_rotated_model_writes_what_it_did_and_comes_back() {
    let dir = folder();
    let dir = dir.path();
    let plan = stdout(rquantize(dir, "--dry-run --rotate 256:signs=7 in.gguf out.gguf F32"));
    assert!(plan.contains("f16 -> f32") && plan.contains("--rotate") && !dir.join("out.gguf").exists(), "{plan}");
    let report = stdout(rquantize(dir, "--rotate 256:signs=7 in.gguf rotated.gguf F32"));
    assert!(report.contains("rotated.gguf: rotated in blocks of 256, "), "{report}");
    assert!(report.contains("loaded by: PrismML's fork of llama.cpp, trine, "), "{report}");
    let mut inspect = Command::new(env!("CARGO_BIN_EXE_rinspect"));
    let shown = stdout(inspect.current_dir(dir).arg("rotated.gguf").output().unwrap());
    assert!(shown.contains("matrices in blocks of 256 with signs, and the embeddings"), "{shown}");
    let text = text_of(dir, "in.gguf");
    assert_eq!(text_of(dir, "rotated.gguf"), text);
    let report = stdout(rquantize(dir, "--json --unrotate rotated.gguf back.gguf F16 2"));
    let report: Json = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["type"], &report["loaded_by"][0]), (&"rotated back".into(), &"llama.cpp".into()));
    let [old, new] = ["in.gguf", "back.gguf"].map(|name| gguf::open(&dir.join(name)));
    for tensor in old.tensors() {
        let [old, new] = [&old, &new].map(|file| file.tensor(&tensor.name).unwrap());
        assert_eq!(old.info.ty, new.info.ty, "{}", tensor.name);
        let decode = tensor.ty.info().and_then(|ty| ty.decode).unwrap();
        let [old, new] = [old, new].map(|t| {
            let mut out = vec![0f32; t.info.shape.iter().product::<u64>() as usize];
            decode(&t.data, &mut out);
            out
        });
        // one rounding to f16, and one to f32 of a block's length
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= a.abs() / 2048.0 + 1e-5;
        assert!(old.iter().zip(&new).all(near), "{}", tensor.name);
    }
    assert_eq!(text_of(dir, "back.gguf"), text);
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let dir = folder();
    let dir = dir.path();
    for (words, says) in [
        ("--rotate 4096 in.gguf out.gguf", "whole blocks of 4096"),
        ("--unrotate in.gguf out.gguf", "no keys prism.hadamard.*: its weights are not rotated"),
        ("--rotate 32 in.gguf out.gguf Q8_0", "become F32, F16 or BF16, not q8_0"),
        ("--rotate 32 in.gguf out.gguf Q9", "unknown tensor type 'Q9'"),
        ("--rotate 32 in.gguf out.gguf F16 many", "'many' is not a number of threads"),
        ("--rotate 32 in.gguf out.gguf F16 2 3", "--rotate takes IN.gguf OUT.gguf [TYPE [THREADS]]"),
        ("--rotate 32 --fallback --pure in.gguf out.gguf", "--pure has no meaning beside --rotate"),
        ("--rotate 32 --verify in.gguf out.gguf", "--verify has no meaning beside --rotate"),
        ("--merge --rotate 32 in.gguf out.gguf", "--rotate has no meaning beside --merge"),
        ("--rotate 32 in.gguf in.gguf", "in.gguf"),
    ] {
        let error = only_error("rquantize", rquantize(dir, words));
        assert!(error.contains(says), "{words}: {error}");
        assert!(!dir.join("out.gguf").exists(), "{words}");
    }
    for words in
        ["--rotate 32: in.gguf out.gguf", "--rotate x in.gguf out.gguf", "--rotate 32 --unrotate in.gguf out.gguf"]
    {
        let output = rquantize(dir, words);
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
}
