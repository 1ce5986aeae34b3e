//! Folders in which other programs keep models: the bytes are a manifest of ollama, and the commit of a hub's cache.

use std::fs;

use trine_hub::{Places, find, installed};

/// Looks for models in such folders.
pub fn target(data: &[u8]) {
    let folder = trine_testkit::folder();
    let at = |path: &str| folder.path().join(path);
    let write = |path: &str, bytes: &[u8]| {
        let path = at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    };
    write("ollama/manifests/registry.ollama.ai/library/m/latest", data);
    write(&format!("ollama/blobs/sha256-{}", "0".repeat(64)), b"GGUF");
    write("hub/models--u--r/refs/main", data);
    write("hub/models--u--r/snapshots/0/m-Q4_K_M.gguf", b"GGUF");
    let places = Places { hub: at("hub"), ollama: vec![at("ollama")], ..Places::default() };
    for model in installed(&places) {
        assert!(model.path.starts_with(folder.path()), "{}", model.path.display());
    }
    find(&places, &String::from_utf8_lossy(data));
}
