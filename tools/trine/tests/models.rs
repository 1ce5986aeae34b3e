//! `trine list` as a person sees it.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use std::fs;
use std::path::Path;

use trine_testkit::tool;

/// The output of `trine list`, with the caches in `folder`.
fn list(folder: &Path) -> (String, String) {
    let output = tool::command(env!("CARGO_BIN_EXE_trine"))
        .arg("list")
        .env("HOME", folder)
        .env("HF_HUB_CACHE", folder.join("hub"))
        .env("LLAMA_CACHE", folder.join("llama"))
        .env("OLLAMA_MODELS", folder.join("ollama"))
        .output()
        .expect("a run");
    assert!(output.status.success());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a text");
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn models_are_a_table_with_heads() {
    let dir = tempfile::tempdir().expect("a folder");
    let (out, err) = list(dir.path());
    assert_eq!(out, "");
    assert!(err.contains("trine pull"), "{err}");

    for (repo, file, size) in [("models--a--one-GGUF", "one-Q4_0.gguf", 1 << 20), ("models--b--another", "b.gguf", 5)] {
        let snapshot = dir.path().join("hub").join(repo).join("snapshots/0123456789abcdef0123456789abcdef01234567");
        fs::create_dir_all(&snapshot).expect("a folder");
        fs::create_dir_all(snapshot.join("../../refs")).expect("a folder");
        fs::write(snapshot.join("../../refs/main"), "0123456789abcdef0123456789abcdef01234567").expect("a file");
        fs::write(snapshot.join(file), vec![0; size]).expect("a file");
    }
    let (out, _) = list(dir.path());
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    assert_eq!(words(lines[0]), ["model", "size", "store"]);
    assert!(lines[1].starts_with("a/one-GGUF"), "{out}");
    let end = |line: &str| line.find("hub").or(line.find("store"));
    assert!(lines.iter().all(|line| end(line) == end(lines[0])), "{out}");
}
