//! `rquantize --tune`: what moves and what stays, that only the inputs decide the bytes, and its answers to mistakes.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value as Json;
use tempfile::TempDir;
use trine_formats::types::TypeId;
use trine_testkit::tool::{command, only_error, refusal, stdout};
use trine_testkit::{gguf, testdata, trilm};

/// Runs in `dir`; the words are split at spaces.
fn rquantize(dir: &Path, words: &str) -> Output {
    let mut command = command(env!("CARGO_BIN_EXE_rquantize"));
    command.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap()
}

/// A folder with the bundled model as `f16.gguf`, a text, and the model in `ty`.
fn folder(ty: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::copy(trilm(), dir.path().join("f16.gguf")).unwrap();
    fs::copy(testdata("imatrix/calib.txt"), dir.path().join("text.txt")).unwrap();
    stdout(rquantize(dir.path(), &format!("--force f16.gguf in.gguf {ty}")));
    dir
}

const TUNE: &str = "--tune text.txt --reference f16.gguf --samples 16 --seq-len 24";

#[test]
fn scales_come_nearer_to_the_original_and_codes_stay() {
    let dir = folder("Q4_0");
    let dir = dir.path();
    let report = stdout(rquantize(dir, &format!("{TUNE} --json in.gguf out.gguf 2")));
    let report: Json = serde_json::from_str(&report).unwrap();
    let divergence = |name: &str| report["divergence"][name].as_f64().unwrap();
    assert!(divergence("after") < 0.95 * divergence("before"), "{report}");
    assert_eq!((&report["type"], &report["divergence"]["scales"]), (&"tuned".into(), &147_456.into()));
    let [old, new] = ["in.gguf", "out.gguf"].map(|name| gguf::open(&dir.join(name)));
    assert_eq!(
        fs::metadata(dir.join("in.gguf")).unwrap().len() / 4096,
        fs::metadata(dir.join("out.gguf")).unwrap().len() / 4096
    );
    assert_eq!(new.meta().get_u32("tune.calibration.sequences").unwrap(), Some(16));
    let names = |file: &trine_formats::gguf::ModelFile| file.tensors().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&old), names(&new));
    let mut moved = 0;
    for tensor in old.tensors() {
        let [old, new] = [&old, &new].map(|file| file.tensor(&tensor.name).unwrap());
        assert_eq!((old.info.ty, &old.info.shape), (new.info.ty, &new.info.shape), "{}", tensor.name);
        if tensor.ty != TypeId::Q4_0 {
            assert!(old.data[..] == new.data[..], "{} is copied", tensor.name);
            continue;
        }
        for (old, new) in old.data.chunks(18).zip(new.data.chunks(18)) {
            assert_eq!(old[2..], new[2..], "codes of {}", tensor.name);
            moved += usize::from(old[..2] != new[..2]);
        }
    }
    assert!(moved > 100_000, "{moved} scales moved");
}

#[test]
fn neither_threads_nor_instruction_sets_change_a_byte() {
    let dir = folder("Q4_0");
    let dir = dir.path();
    let made = |words: &str, isa: &str| {
        let mut command = command(env!("CARGO_BIN_EXE_rquantize"));
        command.current_dir(dir).args(TUNE.split(' ')).args(words.split(' ')).env("TRINE_ISA", isa);
        stdout(command.output().unwrap());
        fs::read(dir.join("out.gguf")).unwrap()
    };
    let most = trine::Isa::detect().to_string();
    let want = made("in.gguf out.gguf 1", &most);
    assert!(made("in.gguf out.gguf 2", "scalar") == want);
    assert!(made("--seed 1 in.gguf out.gguf 2", &most) != want);
}

#[test]
fn what_cannot_be_tuned_is_refused_in_one_line() {
    let dir = folder("Q4_0");
    let dir = dir.path();
    stdout(rquantize(dir, "--tables 2 f16.gguf shared.gguf AP3"));
    stdout(rquantize(dir, "--tensor-type blk=mxfp4 f16.gguf mxfp4.gguf Q8_0"));
    for (words, says) in [
        (format!("{TUNE} in.gguf out.gguf Q4_0"), "'Q4_0' is not a number of threads"),
        (format!("{TUNE} in.gguf out.gguf 2 3"), "--tune takes IN.gguf OUT.gguf [THREADS]: the file keeps its types"),
        (format!("{TUNE} --pure in.gguf out.gguf"), "--pure has no meaning beside --tune"),
        (format!("{TUNE} --dry-run in.gguf out.gguf"), "--dry-run has no meaning beside --tune"),
        (format!("{TUNE} in.gguf f16.gguf"), "it is also the input"),
    ] {
        let error = only_error("rquantize", rquantize(dir, &words));
        assert!(error.contains(says), "{words}: {error}");
    }
    let long = "--tune text.txt --reference f16.gguf --seq-len 9000";
    for (words, says) in [
        (format!("{long} in.gguf out.gguf"), "tuning needs 8: use a longer text, a smaller --seq-len"),
        (format!("{TUNE} f16.gguf out.gguf"), "no matrix of the model's blocks is quantized"),
        (format!("{TUNE} shared.gguf out.gguf"), "tensor blk.0.attn_q.weight: its rows share tables"),
        (format!("{TUNE} mxfp4.gguf out.gguf"), "tensor blk.0.attn_q.weight: type mxfp4 has no scales that are floats"),
    ] {
        let error = refusal("rquantize", rquantize(dir, &words)).error;
        assert!(error.contains(says), "{words}: {error}");
    }
    assert!(!dir.join("out.gguf").exists());
}

#[test]
fn a_reference_of_another_shape_or_vocabulary_is_refused() {
    let dir = folder("Q4_0");
    let dir = dir.path();
    let edit = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(dir.join("f16.gguf")).unwrap();
        change(&mut bytes);
        fs::write(dir.join(name), bytes).unwrap();
    };
    // One token is written in another way.
    edit("words.gguf", &|bytes| {
        let at = bytes.windows(5).position(|w| w == "\u{120}the".as_bytes()).unwrap();
        bytes[at + 2] = b'T';
    });
    // No number comes out of it.
    edit("damaged.gguf", &|bytes| {
        let n = bytes.len();
        bytes[n - 4..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    });
    stdout(rquantize(dir, "--prune-layers 5 f16.gguf short.gguf F16"));
    for (reference, says) in [
        ("words.gguf", "the reference has another vocabulary: tune with the model that the file was made of"),
        ("short.gguf", "tensor blk.5.attn_q.weight is not in the reference"),
        ("damaged.gguf", "damaged"),
    ] {
        let words = format!("--tune text.txt --samples 16 --seq-len 24 --reference {reference} in.gguf out.gguf");
        let error = refusal("rquantize", rquantize(dir, &words)).error;
        assert!(error.contains(says), "{reference}: {error}");
    }
    stdout(rquantize(dir, "short.gguf few.gguf Q4_0"));
    let words = "--tune text.txt --samples 16 --seq-len 24 --reference f16.gguf few.gguf out.gguf";
    let error = refusal("rquantize", rquantize(dir, words)).error;
    assert!(error.contains("the reference has tensor blk.5.attn_q.weight, which the file has not"), "{error}");
    assert!(!dir.join("out.gguf").exists());
}

/// A file that is its own reference diverges by nothing, and no scales are better.
#[test]
fn nothing_worse_than_the_input_is_written() {
    let dir = folder("Q8_0");
    let dir = dir.path();
    let words = "--tune text.txt --reference in.gguf --samples 8 --seq-len 24 in.gguf out.gguf";
    let error = refusal("rquantize", rquantize(dir, words)).error;
    assert!(
        error.starts_with("no scales were found that are better on the part of the text that was held out"),
        "{error}"
    );
    assert!(!dir.join("out.gguf").exists());
}
