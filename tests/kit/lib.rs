//! Common parts of all crates' tests: where the test data lies, small GGUF files, recorded outputs of the reference
//! programs, running a tool, and saying that a test was skipped.
//!
//! Everything here is for tests: what cannot be done is a panic that names the file.

pub mod archs;
pub mod dense;
pub mod gguf;
pub mod golden;
pub mod hub;
pub mod npz;
pub mod pasted;
pub mod raw;
pub mod tool;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
pub use tempfile::TempDir;

/// The repository's root directory.
pub fn root() -> PathBuf {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR"));
    kit.ancestors().nth(2).unwrap_or(kit).to_owned()
}

/// A path in `testdata`.
pub fn testdata(path: &str) -> PathBuf {
    root().join("testdata").join(path)
}

/// Reads a file, unpacking `.gz`.
#[track_caller]
pub fn read(path: &Path) -> Vec<u8> {
    let shown = path.display();
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{shown}: {e}"));
    if path.extension().is_none_or(|e| e != "gz") {
        return bytes;
    }
    let mut out = Vec::new();
    let unpacked = flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut out);
    unpacked.unwrap_or_else(|e| panic!("{shown}: {e}"));
    out
}

/// The file of the bundled model TriLM: architecture `llama`, ternary weights in F16.
pub fn trilm() -> PathBuf {
    testdata("models/trilm-wt-5.8m-F16.gguf")
}

/// The bytes of the bundled model of architecture `bitnet`, which is packed in the repository.
pub fn bitnet() -> Vec<u8> {
    read(&testdata("models/bitnet-wt-5.8m-F16.gguf.gz"))
}

/// True if the tests are to take the long form of random and recorded comparisons: `TRINE_TESTS=long`.
pub fn is_long() -> bool {
    std::env::var_os("TRINE_TESTS").is_some_and(|v| v == "long")
}

/// How often a random comparison is repeated that is worth `long` repetitions where time is of no matter: a sixth of
/// them, but for [`is_long`].
pub fn rounds(long: usize) -> usize {
    if is_long() { long } else { long.div_ceil(6) }
}

/// The text that perplexities are measured on.
pub fn wikitext() -> PathBuf {
    testdata("wikitext-2/wiki.test.raw")
}

/// Asserts that the file at `path` of the repository, which is made from the code, holds `text`. With
/// `TRINE_WRITE_DOCS=1` it is written.
#[track_caller]
pub fn is_written(path: &str, text: &str) {
    let place = root().join(path);
    if std::env::var_os("TRINE_WRITE_DOCS").is_some() {
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).unwrap_or_else(|e| panic!("{path}: {e}"));
        }
        fs::write(&place, text).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let found = fs::read_to_string(&place).unwrap_or_default();
    assert!(found == text, "{path} is not what the code says: TRINE_WRITE_DOCS=1 with this test writes it again");
}

/// A new folder that goes away when it is dropped.
#[track_caller]
pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Names of the files and folders in `dir`, in order.
#[track_caller]
pub fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|n| n.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

/// Says on standard error that the running test is skipped, or a part of it, and why.
pub fn skipped(why: &str) {
    let test = std::thread::current();
    let name = test.name().unwrap_or("?");
    // Not eprintln!: the test harness would hide it, and a skip must be seen.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {why}");
}
