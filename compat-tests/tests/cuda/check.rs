//! `gpu-check` on the emulated GPU: all of its sections, and what it says of a GPU that computes something else.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::{TempDir, tempdir};
use trine::{Recipe, Target};
use trine_formats::types::REGISTRY;

/// Runs it on a device that is as `plan` says; the report beside what it printed.
fn check(folder: &TempDir, plan: &str, words: &[&str]) -> (Output, Value) {
    let out = folder.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-check"))
        .args(["--small", "--out"])
        .arg(&out)
        .args(words)
        // Neither compute-sanitizer nor python3 is asked here, whatever the machine has.
        .env("PATH", folder.path())
        .env("LD_LIBRARY_PATH", folder.path())
        .env("TRINE_FAKE_CUDA", plan)
        .output()
        .expect("gpu-check");
    let text = std::fs::read_to_string(out).unwrap_or_else(|_| "null".to_owned());
    (output, serde_json::from_str(&text).expect("a report"))
}

fn house() -> TempDir {
    let folder = tempdir().expect("a folder");
    trine_fake_cuda::install(folder.path()).expect("the emulated driver");
    folder
}

fn model(folder: &Path) -> String {
    let made = folder.join("model.gguf");
    let file = trine::open_file(trine_testkit::trilm(), true).expect("a model");
    let target = Target::parse("TQ2_0").expect("a file type");
    trine::quantize(&file, &Recipe::new(target), &made).expect("a smaller file");
    made.to_str().expect("a path").to_owned()
}

fn list<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    report[name].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn all_sections_leave_their_part_of_the_report() {
    let folder = house();
    let model = model(folder.path());
    let (output, report) = check(&folder, "devices=2", &[&model]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(report["device"]["name"], "Emulated GPU");
    assert_eq!(list(&report, "modules").len(), trine_cuda::ptx::ALL.len());
    let checks = list(&report, "checks");
    let of = |what: &str| {
        let found = checks.iter().filter(|c| c["what"].as_str().is_some_and(|w| w.contains(what)));
        found.count()
    };
    // One shape and two numbers of tokens of seven exact types and all that are integers, four in half precision and one that
    // is pruned; one cut
    // of the model, two GPUs that share its layers or its rows, and its tokens in half precision. Any-precision weights are counted below.
    let integers = REGISTRY.iter().filter(|info| trine_cuda::plan::integers(info.id).is_some()).count();
    let exact = 2 * (7 + integers);
    assert_eq!((of(" x "), of("in halves"), of("model.gguf")), (exact + 10 + 8, 10, 4), "{told}");
    // Two widths on two number paths.
    assert_eq!(of("any-precision on "), 8, "{told}");
    assert!(checks.iter().all(|c| c["ok"] == true), "{told}");
    assert_eq!(report["failed"], 0);
    assert!(report["sanitizer"].as_str().is_some_and(|w| w.starts_with("not run")));
    assert!(report["cublas"].as_str().is_some_and(|w| w.starts_with("not run")));
    assert!(report["ceilings"]["copy_bytes_per_second"].as_f64().is_some_and(|r| r > 0.0));
    let speed = list(&report, "speed");
    assert_eq!(speed.len(), 9);
    assert!(speed.iter().all(|s| s["seconds"].as_f64().is_some_and(|s| s > 0.0)));
}

#[test]
fn what_a_gpu_does_wrong_is_in_the_report() {
    let folder = house();
    // A kernel that leaves what was there.
    let (output, report) = check(&folder, "skip=q8_0_decode_8", &["--only-checks"]);
    assert!(!output.status.success());
    let failed: Vec<&Value> = list(&report, "checks").iter().filter(|c| c["ok"] == false).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed.iter().all(|c| c["what"].as_str().is_some_and(|w| w.starts_with("q8_0 "))));
    assert_eq!(report["failed"], 1);
    // One that fails ends the run; what was found before stays.
    let (output, report) = check(&folder, "fail=q4_0_decode_8:700", &["--only-checks"]);
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{told}");
    assert_eq!(list(&report, "checks").len(), 6, "{told}");
    // A device that cannot be used, and a mistake of the user.
    let (output, report) = check(&folder, "capability=7.5", &[]);
    assert!(!output.status.success() && report["failed"] == 0, "{report}");
    let (output, _) = check(&folder, "", &["--colour"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no --colour"));
}
