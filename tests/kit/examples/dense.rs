//! Writes the dense model of `testdata/dense` to measure quantizers on:
//! `cargo run --release -p trine-testkit --example dense dense-BF16.gguf`.

use std::path::Path;

fn main() {
    match std::env::args().nth(1) {
        Some(path) => trine_testkit::dense::write(Path::new(&path)),
        None => eprintln!("give the name of the file: dense-BF16.gguf"),
    }
}
