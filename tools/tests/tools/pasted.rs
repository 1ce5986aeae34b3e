//! Command lines of llama.cpp's and bitnet.cpp's documents: each runs, or is refused with one right sentence. See
//! `testdata/command-lines/README.md`.

use std::fs;

use assert_cmd::Command;
use serde_json::json;
use trine_testkit::pasted::pasted;
use trine_testkit::{TempDir, folder, testdata, tool as kit, trilm, wikitext};

use super::rconvert::checkpoint::Checkpoint;

/// As long as the text of a key may be on a command line.
const SHORT_TEMPLATE: &str = "{% for m in messages %}{{ m.role + ': ' + m.content + ' ' }}{% endfor %}";

/// The tool that does the work of a program, and what the program's name alone says.
fn tool(program: &str) -> (&'static str, &'static [&'static str]) {
    let name = program.rsplit('/').next().unwrap_or(program);
    match name {
        "llama-cli" | "llama-completion" | "main" | "run_inference.py" => (env!("CARGO_BIN_EXE_rgen"), &[]),
        "llama-quantize" => (env!("CARGO_BIN_EXE_rquantize"), &[]),
        "llama-gguf-split" => (env!("CARGO_BIN_EXE_rquantize"), &[]),
        "llama-perplexity" => (env!("CARGO_BIN_EXE_rperplexity"), &[]),
        "llama-imatrix" => (env!("CARGO_BIN_EXE_rimatrix"), &[]),
        "llama-bench" | "e2e_benchmark.py" => (env!("CARGO_BIN_EXE_rbench"), &[]),
        "llama-batched-bench" => (env!("CARGO_BIN_EXE_rbench"), &["--batched"]),
        "llama-embedding" => (env!("CARGO_BIN_EXE_rgen"), &["--embedding"]),
        "llama-tokenize" => (env!("CARGO_BIN_EXE_rtokenize"), &[]),
        "convert_hf_to_gguf.py" | "setup_env.py" => (env!("CARGO_BIN_EXE_rconvert"), &[]),
        other => panic!("which tool does the work of '{other}'?"),
    }
}

/// The files that the lines name.
fn prepare(folder: &TempDir) {
    let dir = folder.path();
    for (from, name) in [
        (trilm(), "model.gguf"),
        (testdata("adapters/lora-f32.gguf"), "lora.gguf"),
        (testdata("adapters/control.gguf"), "control.gguf"),
        (testdata("tasks/hellaswag.txt"), "hellaswag.txt"),
        (testdata("tasks/winogrande.csv"), "winogrande.csv"),
        (testdata("tasks/multiple-choice.bin"), "multiple-choice.bin"),
    ] {
        fs::copy(&from, dir.join(name)).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    }
    let text = fs::read(wikitext()).expect("a text");
    fs::write(dir.join("text.txt"), &text[..3000]).expect("a text");
    fs::write(dir.join("prompt.txt"), "The game of chess is played by\n").expect("a prompt");
    fs::write(dir.join("grammar.gbnf"), "root ::= [a-z ]+").expect("a grammar");
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    fs::write(dir.join("schema.json"), schema.to_string()).expect("a schema");
    Checkpoint::llama(json!({})).write(dir, "checkpoint");
    let template = format!("tokenizer.chat_template=str:{SHORT_TEMPLATE}");
    let args = ["model.gguf", "chat.gguf", "copy", "--override-kv", &template];
    let mut quantize = Command::new(env!("CARGO_BIN_EXE_rquantize"));
    quantize.current_dir(dir).args(args).assert().success();
}

#[test]
fn lines_of_other_programs_run_or_are_refused_with_a_right_sentence() {
    let dir = folder();
    prepare(&dir);
    let (mut ran, mut wrong) = (0, Vec::new());
    for pasted in pasted("lines.txt") {
        let (program, more) = tool(&pasted.words[0]);
        let mut command = Command::from(kit::command(program));
        command.current_dir(dir.path()).args(more);
        let command = command.args(&pasted.words[1..]);
        let output = command.write_stdin("").output().expect("an answer");
        let told = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = told.lines().filter(|l| l.contains("error: ")).collect();
        let right = match &pasted.refusal {
            None => output.status.success() && errors.is_empty(),
            Some(reason) => {
                let mut all = told.lines();
                matches!(output.status.code(), Some(1 | 2)) && !errors.is_empty() && all.any(|l| l.contains(reason))
            }
        };
        ran += usize::from(pasted.refusal.is_none());
        if !right {
            wrong.push(format!("{}\n{}\n{told}", pasted.line, output.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(ran >= 110, "{ran}");
}
