//! The public face of the library, on the bundled model.

mod chat;
mod drafts;
mod embed;
mod generate;
mod open;
mod reuse;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use trine::Model;

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(path)
}

/// The bundled ternary model, opened once for all tests.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| trine::open(testdata("models/trilm-wt-5.8m-F16.gguf")).expect("the bundled model"))
}

/// The bits of logits, which must be the same and not only nearly so.
fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}
