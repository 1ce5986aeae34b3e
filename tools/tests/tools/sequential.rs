//! `rquantize --sequential`: error feedback behind what is rounded already.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;
use trine::eval::Chunks;
use trine::eval::hessian::Walk;
use trine::model::LoadOptions;
use trine_formats::gguf::{Gguf, Value};
use trine_formats::hessian::Hessians;
use trine_testkit::{archs, gguf, names_in, testdata, tool};

use super::gptq::{command, file, run};

const MODEL: &str = "trilm-wt-5.8m-F16.gguf";
/// Every matrix that no rule before it names stays what it is.
const REST: &str = "--tensor-type .=f32 --token-embedding-type f32 --output-tensor-type f32";

/// A folder with a mixture of experts of two layers, and a text.
fn with_mixture() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("moe.gguf"), super::rimatrix::mixture()).unwrap();
    fs::copy(testdata("imatrix/calib.txt"), dir.path().join("calib.txt")).unwrap();
    dir
}

/// The data of a tensor of a file.
fn data(dir: &Path, name: &str, tensor: &str) -> Vec<u8> {
    let bytes = file(dir, name);
    let gguf = gguf::header(&bytes);
    let tensor = gguf.tensors.iter().find(|t| t.name == tensor).unwrap();
    let start = (gguf.data_offset + tensor.offset) as usize;
    bytes[start..start + tensor.bytes as usize].to_vec()
}

/// Rounds all of the mixture by the inputs that `model` has, measured in one pass.
fn by_inputs_of(dir: &Path, model: &str, out: &str) {
    let mut rimatrix = Command::new(env!("CARGO_BIN_EXE_rimatrix"));
    let words = format!("-f calib.txt -c 64 --chunks 5 --hessian h-{out} -m {model}");
    tool::stdout(rimatrix.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap());
    tool::stdout(run(dir, &format!("--pure --gptq h-{out} moe.gguf {out} Q4_0")));
}

#[test]
fn each_matrix_is_rounded_by_the_inputs_behind_those_before_it() {
    let dir = with_mixture();
    let dir = dir.path();
    let words = "--sequential calib.txt -c 64 --chunks 5";
    let out = tool::stdout(run(dir, &format!("{words} --pure moe.gguf whole.gguf Q4_0 1")));
    assert!(out.contains("gptq: 14 tensors rounded with error feedback"), "{out}");
    by_inputs_of(dir, "moe.gguf", "one-pass.gguf");
    // Files with what is rounded before a matrix: by the inputs of each the next has the same bytes.
    let steps = [
        ("blk.0.attn_[qkv].", "blk.0.attn_output.weight"),
        ("blk.0.attn_", "blk.0.ffn_up_exps.weight"),
        ("blk.0.(attn|ffn_up|ffn_gate)", "blk.0.ffn_down_exps.weight"),
        ("blk.0.", "blk.1.attn_q.weight"),
    ];
    for (number, (before, next)) in steps.into_iter().enumerate() {
        let (part, out) = (format!("part-{number}.gguf"), format!("next-{number}.gguf"));
        tool::stdout(run(dir, &format!("{words} --tensor-type {before}=q4_0 {REST} moe.gguf {part} Q4_0")));
        by_inputs_of(dir, &part, &out);
        let whole = data(dir, "whole.gguf", next);
        assert!(data(dir, &out, next) == whole, "{next}");
        assert!(data(dir, "one-pass.gguf", next) != whole, "{next}");
    }
    for first in ["q", "k", "v"] {
        let name = format!("blk.0.attn_{first}.weight");
        assert!(data(dir, "one-pass.gguf", &name) == data(dir, "whole.gguf", &name), "{name}");
    }
    // Nothing between two layers is left to be rounded: the next layer has the inputs of the model.
    tool::stdout(run(dir, &format!("{words} --tensor-type blk.1.attn_q=q4_0 {REST} moe.gguf alone.gguf Q4_0")));
    let (alone, name) = (data(dir, "alone.gguf", "blk.1.attn_q.weight"), "blk.1.attn_q.weight");
    assert!(alone == data(dir, "one-pass.gguf", name));
}

#[test]
fn threads_and_instruction_sets_change_no_byte_and_the_file_says_how_it_was_made() {
    let dir = with_mixture();
    let dir = dir.path();
    fs::copy(testdata(&format!("models/{MODEL}")), dir.join(MODEL)).unwrap();
    for (model, chunks, ty) in [("moe.gguf", "-c 64 --chunks 5 --pure", "Q4_0"), (MODEL, "-c 128 --chunks 3", "Q4_K_M")]
    {
        let words = format!("--sequential calib.txt {chunks} {model}");
        tool::stdout(run(dir, &format!("{words} one.gguf {ty} 1")));
        tool::stdout(run(dir, &format!("{words} many.gguf {ty} 3")));
        let mut scalar = command(dir, &format!("{words} scalar.gguf {ty} 2"));
        tool::stdout(scalar.env("TRINE_ISA", "scalar").output().unwrap());
        let one = file(dir, "one.gguf");
        assert!(one == file(dir, "many.gguf"), "{model}");
        assert!(one == file(dir, "scalar.gguf"), "{model}");
    }
    let meta = gguf::header(&file(dir, "one.gguf")).meta;
    let text = |key| meta.get_str(key).unwrap().unwrap().to_owned();
    assert_eq!(meta.get("gptq.sequential"), Some(&Value::Bool(true)));
    assert_eq!(meta.get("gptq.calibration.tokens"), Some(&Value::U64(384)));
    assert_eq!(text("gptq.calibration.sha256"), trine_testkit::sha256(&file(dir, "calib.txt")));
    assert_eq!(text("gptq.source_sha256"), trine_testkit::sha256(&file(dir, MODEL)));
    // A plan needs the model and the text too, and writes nothing.
    let plan =
        tool::stdout(run(dir, &format!("--dry-run --json --sequential calib.txt --chunks 2 -c 64 {MODEL} Q4_0")));
    let json: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(json["gptq"]["tensors"], 42);
}

/// The file with the first number of a tensor of floats changed.
fn changed(bytes: &[u8], tensor: &str, value: f32) -> Vec<u8> {
    let gguf: Gguf = gguf::header(bytes);
    let tensor = gguf.tensors.iter().find(|t| t.name == tensor).unwrap();
    let start = (gguf.data_offset + tensor.offset) as usize;
    let mut bytes = bytes.to_vec();
    bytes[start..start + 4].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn what_cannot_be_honoured_is_one_line_and_leaves_nothing() {
    let dir = with_mixture();
    let dir = dir.path();
    fs::write(dir.join("short.txt"), "Too short a text.").unwrap();
    fs::copy(testdata("imatrix/trilm-F16.imatrix.gguf"), dir.join("im.gguf")).unwrap();
    let damaged = changed(&file(dir, "moe.gguf"), "blk.1.ffn_norm.weight", f32::INFINITY);
    fs::write(dir.join("inf.gguf"), damaged).unwrap();
    let before = names_in(dir);
    for (words, expected) in [
        ("--sequential short.txt M o.gguf Q4_0", "--sequential 'short.txt'"),
        ("--sequential gone.txt M o.gguf Q4_0", "gone.txt"),
        ("--sequential calib.txt -c 64 --chunks 2 --pure inf.gguf o.gguf Q4_0", "blk.1.ffn_"),
        ("--sequential calib.txt M o.gguf F16", "--gptq is for quantized types"),
        ("--sequential calib.txt M o.gguf AP4", "--sequential has no meaning for AP4"),
        ("--sequential calib.txt --width 3 M o.gguf", "--sequential has no meaning beside --width"),
    ] {
        let words = words.replace("M ", "moe.gguf ");
        let error = tool::refusal("rquantize", run(dir, &words)).error;
        assert!(error.contains(expected), "{words}: {error}");
        assert_eq!(names_in(dir), before, "{words}");
    }
    for words in [
        "--chunks 4 M o.gguf Q4_0",
        "--sequential calib.txt --gptq h.gguf M o.gguf Q4_0",
        "--sequential calib.txt --imatrix im.gguf M o.gguf Q4_0",
        "--sequential calib.txt --prune-layers 1 M o.gguf Q4_0",
        "--sequential calib.txt --target-bpw 4 M o.gguf",
        "--sequential calib.txt --chunks 0 M o.gguf Q4_0",
    ] {
        let output = run(dir, &words.replace("M ", "moe.gguf "));
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
}

#[test]
fn architectures_whose_blocks_do_not_stand_alone_are_refused_by_name() {
    for (name, arch, what) in [
        ("archs/gemma3n-long.txt", "gemma3n", "that an earlier one stored"),
        ("archs/encoder/t5.txt", "t5", "states of another model"),
    ] {
        let path = testdata(name);
        let file = gguf::model(archs::listing(&path).file());
        let tokens: Vec<u32> = (0..16).collect();
        let chunks = Chunks::new(tokens, 8, None, None).unwrap();
        let pool = trine::Pool::new(1).unwrap();
        let refused = Walk::new(file, LoadOptions::default(), pool, chunks, Default::default());
        let error = refused.err().expect(arch).to_string();
        assert!(error.contains(&format!("architecture {arch} cannot be taken layer by layer")), "{error}");
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn inputs_are_those_of_one_pass_where_nothing_is_rounded() {
    let dir = with_mixture();
    let dir = dir.path();
    let mut rimatrix = Command::new(env!("CARGO_BIN_EXE_rimatrix"));
    let words = "-f calib.txt -c 64 --chunks 3 --hessian h.gguf -m moe.gguf";
    tool::stdout(rimatrix.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap());
    let bytes = file(dir, "h.gguf");
    let gguf = gguf::header(&bytes);
    let wanted = Hessians::parse(&gguf.meta, &gguf.tensors).unwrap();
    let model = trine::open(dir.join("moe.gguf")).unwrap();
    let text = fs::read_to_string(dir.join("calib.txt")).unwrap();
    let tokens = model.tokenizer().encode(text.trim_end_matches('\n'), true, false).unwrap();
    let chunks = Chunks::new(tokens, 64, model.tokenizer().text_bos(), Some(3)).unwrap();
    let file = trine::open_file(dir.join("moe.gguf"), true).unwrap();
    let pool = trine::Pool::new(2).unwrap();
    let mut walk = Walk::new(file, LoadOptions::default(), pool, chunks, wanted.origin.clone()).unwrap();
    assert_eq!(walk.header().weights, wanted.weights);
    for name in ["blk.0.attn_q.weight", "blk.1.ffn_down_exps.weight"] {
        let reads = wanted.weights[name];
        let (mut last, mut of) = (0, 0);
        let found = walk.measure(reads, &mut |done, all| {
            assert_eq!(done, last + 1);
            (last, of) = (done, all);
            true
        });
        let found = found.unwrap();
        assert_eq!(last, of);
        for input in reads.inputs() {
            assert_eq!(found.header.tokens_of(input), wanted.tokens_of(input));
            let start = (gguf.data_offset + gguf.tensors[input].offset) as usize;
            let sums = bytes[start..].chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()).to_bits());
            assert!(found.sums[input].iter().map(|sum| sum.to_bits()).eq(sums.take(found.sums[input].len())), "{name}");
        }
    }
    // Blocks are gone through once.
    let error = walk.measure(wanted.weights["blk.0.attn_q.weight"], &mut |_, _| true).unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_q.weight"), "{error}");
}
