//! `rimatrix --hessian`: what it writes, how it goes on, and its answers to mistakes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use assert_cmd::Command;
use tempfile::TempDir;
use trine::eval::{Chunks, hessian};
use trine::ops::observe::ActivationObserver;
use trine::{Segment, StepOptions};
use trine_formats::gguf::Gguf;
use trine_formats::hessian::Hessians;
use trine_testkit::gguf::header;
use trine_testkit::tool::{end_signal, stdout};
use trine_testkit::{sha256, testdata};

use super::{assert_error, command, mixture, trilm, written};

fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(testdata("imatrix/calib.txt"), dir.path().join("calib.txt")).unwrap();
    dir
}

/// Runs on short chunks of the text with the TriLM model.
fn collected(dir: &TempDir, words: &str) -> Command {
    let mut command = command(dir, "-f calib.txt -c 64 -m");
    command.arg(trilm()).args(words.split(' '));
    command
}

fn parsed(file: &[u8]) -> (Gguf, Hessians) {
    let gguf = header(file);
    let hessians = Hessians::parse(&gguf.meta, &gguf.tensors).unwrap();
    (gguf, hessians)
}

fn sums(file: &[u8], gguf: &Gguf, tensor: usize) -> Vec<f64> {
    let tensor = &gguf.tensors[tensor];
    let start = (gguf.data_offset + tensor.offset) as usize;
    let data = &file[start..start + tensor.bytes as usize];
    let numbers = data.as_chunks().0.iter();
    numbers.map(|b| f64::from_le_bytes(*b)).collect()
}

#[test]
fn matrices_that_read_one_input_share_its_sums() {
    let dir = folder();
    let run = collected(&dir, "--chunks 2 --json --hessian").output();
    let out = stdout(run.unwrap());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["schema"], "rimatrix.hessian/1");
    assert_eq!(json["provenance"]["models"].as_array().map(Vec::len), Some(1));
    let count = |key: &str| json[key].as_u64().unwrap();
    assert_eq!((count("inputs"), count("matrices")), (24, 42));
    assert_eq!((count("chunks"), count("tokens")), (2, 128));
    let file = fs::read(dir.path().join("hessian.gguf")).unwrap();
    let (gguf, hessians) = parsed(&file);
    assert_eq!((hessians.inputs.len(), hessians.weights.len()), (24, 42));
    let input = |name: &str| hessians.weights[&format!("blk.3.{name}.weight")].first;
    assert_eq!(input("attn_q"), input("attn_v"));
    assert_eq!(input("attn_q"), input("attn_k"));
    assert_eq!(input("ffn_gate"), input("ffn_up"));
    assert_ne!(input("attn_q"), input("attn_output"));
    assert_eq!(hessians.inputs[input("ffn_down")].columns, 768);
    let origin = &hessians.origin;
    // testdata/imatrix/README.md and testdata/models/README.md
    assert_eq!(origin.dataset_sha256, "479d15f9bc060553b1431cb24dd8cbf697fce45d5d88d2f97c3ee997c1496cf5");
    assert_eq!(origin.model_sha256, "e759dfdf3c7240b765d06d29f89ded0bf7e88bd0051005d15ee48399d6af4baf");
    assert_eq!((origin.chunk_size, origin.first_chunk), (64, 0));

    // The diagonal is what an importance matrix of the same tokens holds, up to its rounding.
    let words = "-c 64 -b 64 -ub 64 --chunks 2 --no-ppl -o im.gguf";
    let matrix = written(&dir, super::collect_in(&dir, "calib.txt", words), "im.gguf");
    let matrix = trine_formats::imatrix::Imatrix::parse(&matrix).unwrap();
    for (name, reads) in &hessians.weights {
        let sums = sums(&file, &gguf, reads.first);
        for (j, &want) in matrix.entries[name].sums.iter().enumerate() {
            let got = sums[j * (j + 1) / 2 + j];
            let apart = (got - f64::from(want)).abs();
            assert!(apart <= 1e-4 * got.abs(), "{name} {j}: {got} {want}");
        }
    }
}

#[test]
fn neither_threads_nor_batches_nor_interruptions_change_a_bit() {
    let dir = folder();
    let whole = written(&dir, collected(&dir, "--chunks 3 --hessian a -t 1 -b 64"), "a");
    assert!(written(&dir, collected(&dir, "--chunks 3 --hessian b -t 3 -b 300"), "b") == whole);
    let scalar = {
        let mut command = collected(&dir, "--chunks 3 --hessian -o c --no-mmap --no-repack");
        command.env("TRINE_ISA", "scalar");
        written(&dir, command, "c")
    };
    assert!(scalar == whole);
    // Started with fewer chunks, saved after each, continued twice, one time with nothing to do.
    let first = written(&dir, collected(&dir, "--chunks 2 --hessian d --resume"), "d");
    assert!(first != whole);
    for threads in [3, 2] {
        let words = format!("--chunks 3 --hessian d --resume --output-frequency 1 -t {threads}");
        assert!(written(&dir, collected(&dir, &words), "d") == whole);
    }
    let other = written(&dir, collected(&dir, "--chunks 3 --from-chunk 1 --hessian e"), "e");
    assert!(other != whole);
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_is_done() {
    use std::io::{BufRead, BufReader};
    let dir = folder();
    let text = fs::read(dir.path().join("calib.txt")).unwrap().repeat(40);
    fs::write(dir.path().join("long.txt"), text).unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_rimatrix"))
        .current_dir(dir.path())
        .args(["-m", &trilm(), "-f", "long.txt", "-c", "64"])
        .args(["-b", "64", "--hessian", "part"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let begun = lines.any(|l| l.unwrap().contains("seconds per chunk"));
    assert!(begun);
    let pid = child.id().to_string();
    let kill = std::process::Command::new("kill").args([end_signal(), &pid]).status();
    assert!(kill.unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert_eq!(rest.last().map(String::as_str), Some("interrupted"));
    let file = fs::read(dir.path().join("part")).unwrap();
    let chunks = parsed(&file).1.chunks;
    let stopped = format!("stopped after chunk {chunks}, saved in 'part'");
    assert!(rest.iter().any(|l| l.contains(&stopped)), "{rest:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    let mut same = command(&dir, "-f long.txt -c 64 --hessian same --chunks");
    same.args([&chunks.to_string(), "-m", &trilm()]);
    assert!(sha256(&written(&dir, same, "same")) == sha256(&file));
}

#[test]
fn mistakes_are_one_line() {
    let dir = folder();
    let good = written(&dir, collected(&dir, "--chunks 2 --hessian good"), "good");
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    let mut damaged = good.clone();
    let last = damaged.len() - 1;
    damaged[last - 7..].copy_from_slice(&f64::NAN.to_le_bytes());
    write("damaged", &damaged);
    write("cut", &good[..good.len() - 40]);
    write("mixture.gguf", &mixture());
    for (words, expected) in [
        ("--chunks 1 --hessian good --resume", "2 chunks already"),
        ("-c 100 --hessian good --resume", "made with other options"),
        ("--hessian damaged --resume", "'blk.5.ffn_down.weight.xtx' are damaged"),
        ("--hessian cut --resume", "cannot go on from 'cut'"),
        ("--hessian calib.txt", "calib.txt"),
        ("--hessian a -o b", "give one of the two"),
    ] {
        assert_error(collected(&dir, words), expected);
    }
    assert!(fs::read(dir.path().join("good")).unwrap() == good);
    let of_mixture = "-f calib.txt -c 64 -m mixture.gguf --hessian x";
    for (words, expected) in [
        ("--hessian-memory 4K", "the sums of the input of 'blk.0.attn_q.weight' alone take"),
        ("--hessian-memory 100K --resume", "--resume is for sums that are in memory together"),
        ("--hessian-memory 100K --output-frequency 1", "--output-frequency is for sums"),
    ] {
        assert_error(command(&dir, &format!("{of_mixture} {words}")), expected);
    }
    assert!(!dir.path().join("x").exists());
}

/// The rows of one input.
type Matrix = Vec<Vec<f32>>;

/// Keeps the rows that go to every expert, chunk after chunk.
#[derive(Default)]
struct Rows(Mutex<BTreeMap<(String, usize), Matrix>>);

impl ActivationObserver for Rows {
    fn observe(&self, _: &str, _: &[f32], _: usize) {}

    fn observe_expert(&self, tensor: &str, expert: usize, _: usize, rows: &[f32], _: usize) {
        self.0.lock().unwrap().entry((tensor.to_owned(), expert)).or_default().push(rows.to_vec());
    }
}

/// The rows that go to the experts of a model, of each of `count` chunks of 64 tokens.
fn rows_of_experts(model: &Path, text: &str, count: usize) -> BTreeMap<(String, usize), Vec<Vec<f32>>> {
    let model = trine::open(model).unwrap();
    let tokens = model.tokenizer().encode(text, true, false).unwrap();
    let chunks = Chunks::new(tokens, 64, model.tokenizer().text_bos(), Some(count)).unwrap();
    let engine = model.engine(hessian::cache_bytes(model.weights(), &chunks, 1));
    let rows = Arc::new(Rows::default());
    let options = StepOptions { observer: Some(rows.clone()), n_ubatch: usize::MAX, ..StepOptions::default() };
    for chunk in chunks.tokens().chunks(64).take(count) {
        let (mut seq, mut tokens) = (engine.sequence(), chunk.to_vec());
        if let Some(bos) = model.tokenizer().text_bos() {
            tokens[0] = bos;
        }
        let mut segments = [Segment { seq: &mut seq, tokens: &tokens, logits_from: tokens.len() }];
        engine.step(&mut segments, &options, &mut |_, _, _| {}).unwrap();
    }
    std::mem::take(&mut *rows.0.lock().unwrap())
}

#[test]
fn experts_have_the_sums_of_the_rows_that_go_there() {
    let dir = folder();
    let path = dir.path().join("moe.gguf");
    fs::write(&path, mixture()).unwrap();
    let run = |words: &str| command(&dir, &format!("-f calib.txt -c 64 -m moe.gguf --chunks 3 --hessian {words}"));
    let whole = written(&dir, run("whole -t 1"), "whole");
    let (gguf, hessians) = parsed(&whole);
    let text = fs::read_to_string(dir.path().join("calib.txt")).unwrap();
    let rows = rows_of_experts(&path, text.trim_end_matches('\n'), 3);
    let mut seen = 0;
    for (name, reads) in hessians.weights.iter().filter(|(_, reads)| reads.experts > 0) {
        assert_eq!(reads.experts, 24);
        for expert in 0..24 {
            let input = reads.first + expert;
            let columns = hessians.inputs[input].columns as usize;
            let chunks = rows.get(&(name.clone(), expert)).cloned().unwrap_or_default();
            let tokens: usize = chunks.iter().map(|rows| rows.len() / columns).sum();
            assert_eq!(hessians.tokens_of(input), tokens as u64, "{name} {expert}");
            let sums = sums(&whole, &gguf, input);
            for i in 0..columns {
                for j in 0..=i {
                    // Fewer than 128 rows of a chunk are one sum in f32.
                    let of_chunk = |rows: &Vec<f32>| {
                        let products = rows.chunks(columns).map(|row| row[i] * row[j]);
                        f64::from(products.fold(0.0, |sum, product| sum + product))
                    };
                    let want = chunks.iter().fold(0.0, |sum, rows| sum + of_chunk(rows));
                    assert_eq!(sums[i * (i + 1) / 2 + j].to_bits(), want.to_bits(), "{name} {expert}: {i} {j}");
                }
            }
            seen += tokens;
        }
    }
    // Every token of three chunks goes to three experts, which have three matrices in each of two layers.
    assert_eq!(seen, 3 * 64 * 3 * 3 * 2);
    let reads = |name: &str| hessians.weights[&format!("blk.0.{name}.weight")];
    assert_eq!(reads("ffn_gate_exps"), reads("ffn_up_exps"));
    assert_ne!(reads("ffn_gate_exps"), reads("ffn_down_exps"));
    // Threads, batches, instruction sets, and the parts that little memory makes of it change nothing.
    assert!(written(&dir, run("b -t 3 -b 256"), "b") == whole);
    assert!(written(&dir, run("c --hessian-memory 100K"), "c") == whole);
    let mut scalar = run("d");
    scalar.env("TRINE_ISA", "scalar");
    assert!(written(&dir, scalar, "d") == whole);
    let first = "-f calib.txt -c 64 -m moe.gguf --chunks 2 --hessian e";
    written(&dir, command(&dir, first), "e");
    assert!(written(&dir, run("e --resume"), "e") == whole);
}
