//! The bundled models and golden files, opened the plain way.
#![allow(missing_docs, dead_code)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use trine::kernels::Isa;
use trine::model::{LoadOptions, Model, Session, SessionOptions};
use trine_formats::gguf::{Bytes, Gguf, Limits, ModelFile, Shard};

pub fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(path)
}

/// Reads a file, unpacking `.gz`.
pub fn read(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_none_or(|e| e != "gz") {
        return bytes;
    }
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_end(&mut out)
        .expect("gzip data");
    out
}

pub fn model_file(bytes: Vec<u8>) -> ModelFile {
    model_file_at(Path::new(""), bytes)
}

/// A model whose bytes are those of the file at `path`.
pub fn model_file_at(path: &Path, bytes: Vec<u8>) -> ModelFile {
    let gguf = Gguf::parse(&bytes, &Limits::default()).expect("a valid header");
    let bytes: Bytes = Arc::new(bytes);
    ModelFile::new(vec![Shard {
        path: path.to_owned(),
        gguf,
        bytes,
    }])
    .expect("a whole model")
}

pub fn trilm() -> ModelFile {
    model_file(read(&testdata("models/trilm-wt-5.8m-F16.gguf")))
}

pub fn bitnet() -> ModelFile {
    model_file(read(&testdata("models/bitnet-wt-5.8m-F16.gguf.gz")))
}

/// Token ids and the reference's hash of the logits at each position.
pub struct Golden {
    pub tokens: Vec<u32>,
    pub sha256: Vec<String>,
}

pub fn golden(name: &str) -> Golden {
    let json: serde_json::Value =
        serde_json::from_slice(&read(&testdata(&format!("golden/logits/{name}.json"))))
            .expect("JSON");
    let list = |key: &str| json[key].as_array().expect(key).clone();
    Golden {
        tokens: list("tokens")
            .iter()
            .map(|v| v.as_u64().expect("an id") as u32)
            .collect(),
        sha256: list("sha256_f32le_per_position")
            .iter()
            .map(|v| v.as_str().expect("a hash").to_owned())
            .collect(),
    }
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
        Run {
            isa: Isa::detect(),
            threads: 2,
            n_ubatch: 512,
            per_call: usize::MAX,
        }
    }
}

pub fn hashes(file: &ModelFile, tokens: &[u32], run: Run) -> Vec<String> {
    let model = Model::load(
        file,
        &LoadOptions {
            isa: run.isa,
            threads: run.threads,
            ..LoadOptions::default()
        },
    )
    .expect("a model");
    let mut session = Session::new(
        &model,
        SessionOptions {
            n_ctx: tokens.len(),
            n_ubatch: run.n_ubatch,
        },
    );
    let mut out = Vec::new();
    for part in tokens.chunks(run.per_call.min(tokens.len())) {
        session
            .eval(part, 0, &mut |_, logits| {
                let mut hash = Sha256::new();
                logits.iter().for_each(|v| hash.update(v.to_le_bytes()));
                out.push(hash.finalize().iter().map(|b| format!("{b:02x}")).collect());
            })
            .expect("room for the tokens");
    }
    out
}
