//! `rimatrix --fisher`: what it writes, how it goes on, and its answers to mistakes.

use std::collections::BTreeMap;
use std::fs;

use assert_cmd::Command;
use tempfile::TempDir;
use trine_formats::safetensors::{Dtype, metadata, parse};

use trine_testkit::testdata;
use trine_testkit::tool::{end_signal, stdout};

use super::{assert_error, trilm, written};

fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(testdata("imatrix/calib.txt"), dir.path().join("calib.txt")).unwrap();
    dir
}

/// Runs on short sequences of the text with the TriLM model.
fn fisher(dir: &TempDir, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rimatrix"));
    command
        .current_dir(dir.path())
        .args(["--fisher", "-m", &trilm(), "-f", "calib.txt"])
        .args(["--seq-len", "48"])
        .args(words.split(' '));
    command
}

fn texts(file: &[u8]) -> BTreeMap<String, String> {
    metadata(file, file.len() as u64).unwrap().into_iter().collect()
}

#[test]
fn the_file_has_a_sum_for_every_weight_of_the_blocks() {
    let dir = folder();
    let out = stdout(fisher(&dir, "--samples 3 --json").output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["schema"], "rimatrix.fisher/1");
    assert_eq!(json["provenance"]["models"].as_array().map(Vec::len), Some(1));
    let file = fs::read(dir.path().join("fisher.safetensors")).unwrap();
    let tensors = parse(&file, file.len() as u64).unwrap();
    assert_eq!(tensors.len(), 42);
    for t in &tensors {
        assert_eq!(t.dtype, Dtype::F32);
        assert!(t.name.starts_with("blk.") && t.name.ends_with(".weight"));
        let data = &file[t.offset as usize..][..t.bytes as usize];
        let sums = data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
        assert!(sums.clone().all(|s| s.is_finite() && s >= 0.0), "{}", t.name);
        assert!(sums.clone().any(|s| s > 0.0), "{}", t.name);
    }
    let down = tensors.iter().find(|t| t.name == "blk.5.ffn_down.weight");
    assert_eq!(down.unwrap().shape, [256, 768]);
    let texts = texts(&file);
    let text = |key: &str| texts[key].as_str();
    assert_eq!((text("kind"), text("split")), ("squared-gradients", "chunks"));
    assert_eq!((text("samples"), text("seq_len"), text("seed")), ("3", "48", "0"));
    assert_eq!(text("dataset"), "calib.txt");
    // testdata/imatrix/README.md and testdata/models/README.md
    assert_eq!(text("dataset_sha256"), "479d15f9bc060553b1431cb24dd8cbf697fce45d5d88d2f97c3ee997c1496cf5");
    assert_eq!(text("model_sha256"), "e759dfdf3c7240b765d06d29f89ded0bf7e88bd0051005d15ee48399d6af4baf");
    let loss: f64 = text("mean_loss").parse().unwrap();
    assert!((loss - json["mean_loss"].as_f64().unwrap()).abs() < 1e-6);
    assert!((3.0..7.0).contains(&loss));
}

#[test]
fn neither_threads_nor_interruptions_change_a_bit() {
    let dir = folder();
    let whole = written(&dir, fisher(&dir, "--samples 3 -o a -t 1"), "a");
    // Started with fewer samples, saved after each, continued twice, one time with nothing to do.
    let first = written(&dir, fisher(&dir, "--samples 2 -o b --resume"), "b");
    assert!(first != whole);
    for threads in [3, 2] {
        let words = format!("--samples 3 -o b --resume --output-frequency 1 -t {threads}");
        assert!(written(&dir, fisher(&dir, &words), "b") == whole);
    }
    let scalar = {
        let mut command = fisher(&dir, "--samples 3 -o c --no-mmap");
        command.env("TRINE_ISA", "scalar");
        written(&dir, command, "c")
    };
    assert!(scalar == whole);
    let other = written(&dir, fisher(&dir, "--samples 3 -o d --seed 1"), "d");
    assert!(other != whole);
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_is_done() {
    use std::io::{BufRead, BufReader};
    let dir = folder();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_rimatrix"))
        .current_dir(dir.path())
        .args(["--fisher", "-m", &trilm(), "-f", "calib.txt", "-o", "part"])
        .args(["--seq-len", "48", "--samples", "400"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let begun = lines.any(|l| l.unwrap().contains("seconds per sample"));
    assert!(begun);
    let pid = child.id().to_string();
    let kill = std::process::Command::new("kill").args([end_signal(), &pid]).status();
    assert!(kill.unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert_eq!(rest.last().map(String::as_str), Some("interrupted"));
    let file = fs::read(dir.path().join("part")).unwrap();
    let samples: usize = texts(&file)["samples"].parse().unwrap();
    assert!((1..400).contains(&samples));
    let stopped = format!("stopped after sample {samples}, saved in 'part'");
    assert!(rest.iter().any(|l| l.contains(&stopped)), "{rest:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    let words = format!("--samples {samples} -o same");
    assert!(written(&dir, fisher(&dir, &words), "same") == file);
}

#[test]
fn documents_that_are_long_enough_are_taken() {
    let dir = folder();
    let long = "The game was released in Japan and sold well in its first year . ".repeat(9);
    let line = |text: &str| serde_json::json!({ "text": text, "id": 7 }).to_string();
    let lines = [long.as_str(), "short", &long[64..]];
    fs::write(dir.path().join("l.txt"), lines.join("\n")).unwrap();
    fs::write(dir.path().join("l.jsonl"), lines.map(line).join("\n")).unwrap();
    for (file, form) in [("l.txt", "lines"), ("l.jsonl", "jsonl")] {
        let words = format!("--documents {form} -f {file} -o {form}");
        let bytes = written(&dir, fisher(&dir, &words), form);
        let texts = texts(&bytes);
        assert_eq!((texts["samples"].as_str(), texts["split"].as_str()), ("2", form));
    }
    let sums = |name: &str| {
        let file = fs::read(dir.path().join(name)).unwrap();
        let tensors = parse(&file, file.len() as u64).unwrap();
        let data = tensors.iter().map(|t| t.offset).min().unwrap();
        file[data as usize..].to_vec()
    };
    assert!(sums("lines") == sums("jsonl"));
    assert_error(fisher(&dir, "--documents jsonl -o o"), "line 2 is not JSON");
}

#[test]
fn mistakes_are_one_line() {
    let dir = folder();
    let good = written(&dir, fisher(&dir, "--samples 2 -o good"), "good");
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("cut", &good[..good.len() - 1]);
    write("head", &good[..100]);
    let mut negative = good.clone();
    let last = negative.len() - 1;
    negative[last] |= 0x80;
    write("negative", &negative);
    let mut renamed = good.clone();
    let at = good.windows(12).position(|w| w == b"blk.0.attn_q").unwrap();
    renamed[at + 11] = b'x';
    write("renamed", &renamed);
    let mut endless = good.clone();
    endless[..8].fill(0xff);
    write("endless", &endless);
    let mut text = fs::read(dir.path().join("calib.txt")).unwrap();
    text[9] = b'#';
    write("other.txt", &text);
    for (words, expected) in [
        ("-o good --resume --seed 1", "its seed is '0', this run's '1'"),
        ("-o good --resume --seq-len 50", "its seq_len is '48', this run's '50'"),
        ("-o good --resume -f other.txt", "its dataset is 'calib.txt', this run's 'other.txt'"),
        ("-o good --resume --samples 1", "'good' has 2 samples already"),
        ("-o cut --resume", "cut off"),
        ("-o head --resume", "the header needs"),
        ("-o negative --resume", "its sums of 'blk.5.ffn_down.weight' are damaged"),
        ("-o renamed --resume", "its tensors are not those of the model"),
        ("-o endless --resume", "no safetensors file"),
        ("-o calib.txt", "it is also an input"),
        ("-o none/x", "cannot write 'none/x'"),
        ("-o o --seq-len 100000", "has no 100000 tokens in a row"),
        ("-o o --documents lines --seq-len 5000", "has no 5000 tokens in a row"),
        ("-o o -f none.txt", "cannot read 'none.txt'"),
        ("-o o -m calib.txt", "not a GGUF file"),
    ] {
        assert_error(fisher(&dir, words), expected);
    }
    assert!(fs::read(dir.path().join("good")).unwrap() == good);
    assert!(!dir.path().join("o").exists());
    for words in ["--chunks 3", "--seq-len 1", "--in-file good", "--documents words"] {
        fisher(&dir, words).assert().code(2);
    }
}
