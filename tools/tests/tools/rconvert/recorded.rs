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
    /// The model that it drafts for.
    target: Option<Checkpoint>,
    /// Name of the folder, which the file repeats.
    folder: String,
    outtype: String,
    /// True if projections in folders of their own are taken.
    dense: bool,
    /// Hash of the reference's file.
    sha256: String,
    /// False where a file of so few tokens cannot run.
    runs: bool,
    /// Hashes of the reference's logits at the positions of six tokens, where they are recorded.
    logits: Vec<String>,
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
    if entry["bare"] == true {
        checkpoint.files.remove("tokenizer.json");
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
    let with_tensors = |mut checkpoint: Checkpoint, lines: &Value| {
        for line in lines.as_array().into_iter().flatten() {
            checkpoint = checkpoint.list("", line.as_str().expect("a tensor"));
        }
        checkpoint
    };
    checkpoint = with_tensors(checkpoint, &entry["tensors"]);
    let target = entry.get("target").map(|t| with_tensors(Checkpoint::of(t["config"].clone()), &t["tensors"]));
    Recorded {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        checkpoint,
        target,
        folder: text(&entry, "folder"),
        outtype: text(&entry, "outtype"),
        dense: entry["dense"] == true,
        sha256: text(&entry, "sha256"),
        runs: entry["runs"] != false,
        logits: strings("logits").iter().map(|hash| hash.as_str().expect("a hash").to_owned()).collect(),
        positions: entry["lines"].as_u64().unwrap_or(6) as usize,
    }
}

impl Recorded {
    /// The file that rconvert makes of the folder.
    fn convert(&self) -> Vec<u8> {
        let dir = trine_testkit::folder();
        let target = self.target.as_ref().map(|t| t.write(dir.path(), "target"));
        let mut args = vec!["--outtype", &self.outtype];
        if let Some(target) = &target {
            args.extend(["--target-model-dir", target.to_str().expect("a path")]);
        }
        if self.dense {
            args.push("--sentence-transformers-dense-modules");
        }
        convert(&self.checkpoint, &self.folder, &args)
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
    for entry in all() {
        let Recorded { name, checkpoint, target, folder, outtype, sha256: expected, .. } = &entry;
        if let Some(folders) = &folders {
            let place = Path::new(folders).join(name).join(outtype);
            fs::create_dir_all(&place).unwrap();
            checkpoint.write(&place, folder);
            target.iter().for_each(|t| drop(t.write(&Path::new(folders).join(name), "target")));
            continue;
        }
        if sha256(&entry.convert()) != *expected {
            wrong.push(name.clone());
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Every file runs: its tensors and keys are those that the architecture asks for.
#[test]
fn what_is_written_runs() {
    for entry in all().into_iter().filter(|r| r.runs) {
        assert_eq!(lines(&entry.name, &entry.convert()).len(), entry.positions, "{}", entry.name);
    }
}

/// Logits of a model whose architecture has no other with its keys are the reference's.
#[test]
fn logits_are_those_of_the_reference() {
    let entries: Vec<Recorded> = all().into_iter().filter(|r| !r.logits.is_empty()).collect();
    assert!(!entries.is_empty());
    for entry in entries {
        let file = entry.convert();
        for isa in [None, Some("scalar")] {
            assert_eq!(lines_with(&entry.name, &file, isa), entry.logits, "{} {isa:?}", entry.name);
        }
    }
}

/// The tokens that files are run on.
const TOKENS: [u32; 6] = [1, 3, 4, 0, 2, 5];

/// Runs a file on the tokens, which make logits or a vector.
pub fn runs(name: &str, file: &[u8]) {
    assert_eq!(lines(name, file).len(), TOKENS.len(), "{name}");
}

/// Hashes of the logits at the positions that a run of a file on the tokens evaluates; empty texts where they make a vector.
fn lines(name: &str, file: &[u8]) -> Vec<String> {
    lines_with(name, file, None)
}

/// The same with an instruction set.
fn lines_with(name: &str, file: &[u8], isa: Option<&str>) -> Vec<String> {
    let dir = trine_testkit::folder();
    let (model, ids) = (dir.path().join("model.gguf"), dir.path().join("ids.txt"));
    fs::write(&ids, TOKENS.map(|id| id.to_string()).join(" ")).unwrap();
    fs::write(&model, file).unwrap();
    let loaded = trine::open(&model).unwrap_or_else(|e| panic!("{name}: {e}"));
    if !loaded.weights().makes_logits() {
        let vector = loaded.embed(&TOKENS, &EmbedOptions::default());
        assert!(vector.is_ok_and(|v| v.iter().any(|x| *x != 0.0)), "{name}");
        return vec![String::new(); TOKENS.len()];
    }
    let mut rgen = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
    rgen.arg("-m").arg(&model).arg("--tokens").arg(&ids);
    rgen.args(["-n", "1", "-t", "1", "--logits-sha256"]);
    rgen.envs(isa.map(|isa| ("TRINE_ISA", isa)));
    let out = rgen.assert().success().get_output().stdout.clone();
    let hash = |line: &str| line.split_whitespace().last().unwrap_or_default().to_owned();
    String::from_utf8(out).unwrap().lines().map(hash).collect()
}

fn of_name(name: &str) -> Recorded {
    read(&testdata("checkpoints").join(format!("{name}.json")))
}

/// The checkpoint of an entry.
pub fn checkpoint(name: &str) -> Checkpoint {
    of_name(name).checkpoint
}

/// The model that the drafter of an entry drafts for.
pub fn target(name: &str) -> Checkpoint {
    of_name(name).target.expect("a drafter")
}

/// Texts by drafters that were converted are those of the models alone.
#[test]
fn drafters_draft_for_their_models() {
    for (name, kind) in [
        ("eagle3", "draft-eagle3"),
        ("eagle3-speculator", "draft-eagle3"),
        ("dflash", "draft-dflash"),
        ("dflash-markov", "draft-dflash"),
    ] {
        let entry = of_name(name);
        let dir = trine_testkit::folder();
        let [model, drafter] = ["model.gguf", "drafter.gguf"].map(|file| dir.path().join(file));
        let target = entry.target.as_ref().expect("the model that it drafts for");
        fs::write(&model, convert(target, "target", &["--outtype", "f32"])).unwrap();
        fs::write(&drafter, entry.convert()).unwrap();
        let text = |more: &[&str]| {
            let mut rgen = Command::from(tool::command(env!("CARGO_BIN_EXE_rgen")));
            rgen.arg("-m").arg(&model).args(["-p", "ab a ab", "-n", "24", "-t", "1", "--temp", "0", "--ignore-eos"]);
            let out = rgen.args(more).assert().success().get_output().clone();
            (out.stdout, String::from_utf8(out.stderr).unwrap())
        };
        let (drafted, said) = text(&["--spec-type", kind, "-md", drafter.to_str().unwrap()]);
        assert_eq!(drafted, text(&[]).0, "{name}: {said}");
    }
}
