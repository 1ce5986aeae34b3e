//! Small random checkpoints of `testdata/checkpoints`, and the hashes of the files that llama.cpp's converter writes for
//! them (`testdata/checkpoints/README.md`).

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use trine::EmbedOptions;
use trine_testkit::{sha256, testdata, tool};

use super::checkpoint::Checkpoint;
use super::convert;

/// A checkpoint, and what is recorded of it.
struct Recorded {
    /// Name of the entry.
    name: String,
    checkpoint: Checkpoint,
    /// Name of the folder, which the file repeats.
    folder: String,
    outtype: String,
    /// Hash of the reference's file.
    sha256: String,
    /// False where a file of so few tokens cannot run.
    runs: bool,
    /// Positions that are evaluated of six tokens: one where an encoder reads them.
    positions: usize,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}")).to_owned()
}

fn read(path: &Path) -> Recorded {
    let entry: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut checkpoint = Checkpoint::of(entry["config"].clone());
    if entry["pieces"] == true {
        checkpoint = checkpoint.pieces();
    }
    if entry["unigram"] == true {
        checkpoint = checkpoint.unigram();
    }
    let strings = |key: &str| entry[key].as_array().cloned().unwrap_or_default();
    let added: Vec<Value> = strings("added");
    checkpoint = checkpoint.specials(added.iter().map(|t| t.as_str().expect("a token")));
    for (name, content) in entry["files"].as_object().into_iter().flatten() {
        checkpoint.more.insert(name.clone(), content.to_string().into_bytes());
    }
    for (name, hex) in entry["binary"].as_object().into_iter().flatten() {
        let digits = hex.as_str().expect("digits").as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).expect("two digits");
        checkpoint.more.insert(name.clone(), digits.chunks(2).map(byte).collect());
    }
    for line in strings("tensors") {
        checkpoint = checkpoint.list("", line.as_str().expect("a tensor"));
    }
    Recorded {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        checkpoint,
        folder: text(&entry, "folder"),
        outtype: text(&entry, "outtype"),
        sha256: text(&entry, "sha256"),
        runs: entry["runs"] != false,
        positions: entry["lines"].as_u64().unwrap_or(6) as usize,
    }
}

fn all() -> Vec<Recorded> {
    let entries = fs::read_dir(testdata("checkpoints")).unwrap();
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
    paths.sort();
    assert!(paths.len() > 50, "{paths:?}");
    paths.iter().map(|p| read(p)).collect()
}

/// `TRINE_RECORDED=FOLDER` writes the folders for the reference instead.
#[test]
fn files_are_those_of_the_reference_converter() {
    let folders = std::env::var_os("TRINE_RECORDED");
    let mut wrong = Vec::new();
    for Recorded { name, checkpoint, folder, outtype, sha256: expected, .. } in all() {
        if let Some(folders) = &folders {
            let place = Path::new(folders).join(&name).join(&outtype);
            fs::create_dir_all(&place).unwrap();
            checkpoint.write(&place, &folder);
            continue;
        }
        let file = convert(&checkpoint, &folder, &["--outtype", &outtype]);
        if sha256(&file) != expected {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Every file runs: its tensors and keys are those that the architecture asks for.
#[test]
fn what_is_written_runs() {
    for Recorded { name, checkpoint, folder, outtype, positions, .. } in all().into_iter().filter(|r| r.runs) {
        let lines = lines(&name, &convert(&checkpoint, &folder, &["--outtype", &outtype]));
        assert_eq!(lines, positions, "{name}");
    }
}

/// The tokens that files are run on.
const TOKENS: [u32; 6] = [1, 3, 4, 0, 2, 5];

/// Runs a file on the tokens, which make logits or a vector.
pub fn runs(name: &str, file: &[u8]) {
    assert_eq!(lines(name, file), TOKENS.len(), "{name}");
}

/// The positions that a run of a file on the tokens evaluates.
fn lines(name: &str, file: &[u8]) -> usize {
    let dir = trine_testkit::folder();
    let (model, ids) = (dir.path().join("model.gguf"), dir.path().join("ids.txt"));
    fs::write(&ids, TOKENS.map(|id| id.to_string()).join(" ")).unwrap();
    fs::write(&model, file).unwrap();
    let loaded = trine::open(&model).unwrap_or_else(|e| panic!("{name}: {e}"));
    if !loaded.weights().makes_logits() {
        let vector = loaded.embed(&TOKENS, &EmbedOptions::default());
        assert!(vector.is_ok_and(|v| v.iter().any(|x| *x != 0.0)), "{name}");
        return TOKENS.len();
    }
    let mut rgen = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    rgen.arg("-m").arg(&model).arg("--tokens").arg(&ids);
    rgen.args(["-n", "1", "-t", "1", "--logits-sha256"]);
    let out = rgen.assert().success().get_output().stdout.clone();
    String::from_utf8(out).unwrap().lines().count()
}

/// The checkpoint of an entry.
pub fn checkpoint(name: &str) -> Checkpoint {
    read(&testdata("checkpoints").join(format!("{name}.json"))).checkpoint
}
