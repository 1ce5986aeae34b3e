//! Prompts that a model's encoder reads.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;
use trine_testkit::archs::{listing, with_encoder};
use trine_testkit::golden;
use trine_testkit::tool::{self, only_error, stdout};

/// A folder with the model, and the reference's values of it.
fn model() -> (tempfile::TempDir, Value) {
    let folder = trine_testkit::folder();
    fs::write(folder.path().join("t5.gguf"), listing(&with_encoder("t5")).file()).unwrap();
    let golden = golden::json("archs/encoder.json");
    let tokens: Value = golden::json("archs/golden.json");
    let source = golden["source"].as_u64().unwrap() as usize;
    let ids: Vec<String> =
        tokens["tokens"]["long"].as_array().unwrap()[..source].iter().map(Value::to_string).collect();
    fs::write(folder.path().join("prompt"), ids.join(" ")).unwrap();
    (folder, golden)
}

/// A run of a tool beside the model.
fn run(folder: &Path, tool: &str, args: &[&str]) -> Output {
    let mut command = Command::from(tool::command(tool));
    command.current_dir(folder).args(["-m", "t5.gguf"]).args(args).output().unwrap()
}

#[test]
fn rgen_has_the_encoder_read_the_prompt() {
    let (folder, golden) = model();
    let form = &golden["models"]["t5"]["F32"];
    let (hashes, greedy) = (form["logits"].as_array().unwrap(), form["greedy"].as_array().unwrap());
    let n = greedy.len();
    let hashes = &hashes[hashes.len() - n..];
    let count = n.to_string();
    let rgen = |args: &[&str]| {
        let all = ["--tokens", "prompt", "-n", &count, "--temp", "0", "--ignore-eos"];
        run(folder.path(), env!("CARGO_BIN_EXE_rgen"), &[&all, args].concat())
    };
    for isa in trine::Isa::available() {
        let mut command = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
        command.current_dir(folder.path()).env("TRINE_ISA", isa.name()).args(["-m", "t5.gguf", "--tokens", "prompt"]);
        command.args(["-n", &count, "--temp", "0", "--ignore-eos", "--logits-sha256"]);
        let lines = stdout(command.output().unwrap());
        for (position, line) in lines.lines().enumerate() {
            let [at, token, hash] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert_eq!(at, position.to_string());
            let before = position.checked_sub(1).map_or(&golden["models"]["t5"]["first"], |i| &greedy[i]);
            assert_eq!(token, before.to_string());
            assert_eq!(&hash[..16], hashes[position].as_str().unwrap(), "{}, position {position}", isa.name());
        }
        assert_eq!(lines.lines().count(), n);
    }
    let json: Value = serde_json::from_str(&stdout(rgen(&["--json"]))).unwrap();
    assert_eq!(
        (&json["tokens"], &json["prompt_tokens"]),
        (&form["greedy"], &golden["models"]["t5"]["first"].as_u64().map_or(Value::Null, |id| vec![id].into()))
    );
    assert_eq!(json["source_tokens"].as_array().unwrap().len() as u64, golden["source"].as_u64().unwrap());
    for (args, option) in [(&["-i"][..], "--interactive"), (&["--prompt-cache", "kept"], "--prompt-cache")] {
        let refused = only_error("rgen", rgen(args));
        assert!(refused.contains(option) && refused.contains("the encoder of 't5.gguf' reads one prompt"), "{refused}");
    }
}

#[test]
fn tools_that_evaluate_texts_alone_refuse_in_one_line() {
    let (folder, _) = model();
    let refused =
        only_error("rbench", run(folder.path(), env!("CARGO_BIN_EXE_rbench"), &["-p", "8", "-n", "0", "-r", "1"]));
    assert!(refused.contains("it attends to another that its encoder reads"), "{refused}");
}
