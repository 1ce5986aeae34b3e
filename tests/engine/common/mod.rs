//! The bundled models and golden files, opened the plain way.
#![allow(missing_docs, dead_code, unused_imports)]

use trine::Isa;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};
use trine_formats::gguf::ModelFile;
use trine_testkit::sha256;

pub use trine_testkit::gguf::model as model_file;
pub use trine_testkit::golden::logits as golden;

pub fn trilm() -> ModelFile {
    trine_testkit::gguf::open(&trine_testkit::trilm())
}

pub fn bitnet() -> ModelFile {
    model_file(trine_testkit::bitnet())
}

/// How a model is run; no choice may change a bit.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub isa: Isa,
    pub threads: usize,
    pub n_ubatch: usize,
    /// Tokens given to `eval` at a time.
    pub per_call: usize,
}

impl Default for Run {
    fn default() -> Run {
        Run { isa: Isa::detect(), threads: 2, n_ubatch: 512, per_call: usize::MAX }
    }
}

pub fn hashes(file: &ModelFile, tokens: &[u32], run: Run) -> Vec<String> {
    let mut out = Vec::new();
    evaluate(file, tokens, run, &LoadOptions::default(), &mut |logits| {
        let bytes: Vec<u8> = logits.iter().flat_map(|v| v.to_le_bytes()).collect();
        out.push(sha256(&bytes));
    });
    out
}

/// Calls `sink` with the logits of every position of a model that is loaded with `options`, but for the instruction
/// set.
pub fn evaluate(
    file: &ModelFile,
    tokens: &[u32],
    run: Run,
    options: &LoadOptions,
    sink: &mut (dyn FnMut(&[f32]) + Send),
) {
    let options = LoadOptions { isa: run.isa, ..options.clone() };
    let model = Weights::load(file, &options).expect("a model");
    let mut session = Session::new(
        &model,
        &Pool::new(run.threads).expect("threads"),
        SessionOptions { n_ctx: tokens.len(), n_ubatch: run.n_ubatch },
    );
    for part in tokens.chunks(run.per_call.min(tokens.len())) {
        session.eval(part, 0, &mut |_, logits| sink(logits)).expect("room for the tokens");
    }
}
