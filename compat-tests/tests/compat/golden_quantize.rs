//! Files written by rquantize have the hashes of those written by llama-quantize.

use trine_compat_tests::golden::{self, Quantized};
use trine_compat_tests::models::{self, BITNET, SMOLLM2, TRILM};
use trine_compat_tests::{or_skip, testdata};

/// All lines of the golden list about `source`, which lies at `path`; names all that differ.
fn check(source: &str, path: &std::path::Path, is_wanted: impl Fn(&Quantized) -> bool) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // Its name goes into the file's metadata, so it is given without a path.
    let imatrix = models::TRILM_IMATRIX;
    std::fs::copy(testdata("imatrix").join(imatrix), dir.path().join(imatrix)).expect("a copy");
    let lines = golden::quantized().expect("golden hashes");
    let lines: Vec<_> = lines.iter().filter(|l| l.source == source && is_wanted(l)).collect();
    assert!(!lines.is_empty(), "no golden hashes of {source}");
    let mut problems = Vec::new();
    for line in lines {
        match models::quantize(path, line, dir.path()) {
            Ok(file) => std::fs::remove_file(file).expect("the output"),
            Err(e) => problems.push(format!("{e:#}")),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn has_imatrix(line: &Quantized) -> bool {
    line.options.iter().any(|o| o == "--imatrix")
}

#[test]
fn trilm() {
    check(TRILM, &models::bundled(TRILM).expect("a bundled model"), |l| !has_imatrix(l));
}

#[test]
fn trilm_with_importance() {
    check(TRILM, &models::bundled(TRILM).expect("a bundled model"), has_imatrix);
}

#[test]
fn bitnet() {
    check(BITNET, &models::bundled(BITNET).expect("a bundled model"), |_| true);
}

#[test]
fn smollm2() {
    if let Some(path) = or_skip(models::smollm2()) {
        check(SMOLLM2, path, |_| true);
    }
}
