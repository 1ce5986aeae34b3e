//! Targets on files that stand beside a model: adapters, matrices of inputs, saved contexts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use trine::generate::Context;
use trine::model::{Adapter, LoadOptions, Weights};
use trine::quant::gptq::HessianFile;
use trine::{ContextOptions, Isa};
use trine_formats::gguf::{Gguf, Limits, ModelFile, Shard};

use super::assert_message;
use crate::samples;

/// The bytes as a file of one shard; `None` where they are none.
fn file_of(data: &[u8]) -> Option<ModelFile> {
    let gguf = Gguf::parse(data, &Limits::default()).ok()?;
    let shard = Shard { path: PathBuf::new(), gguf, bytes: Arc::new(data.to_vec()) };
    ModelFile::new(vec![shard]).ok()
}

/// Loads the sample's model with the bytes as an adapter.
pub fn adapter(data: &[u8]) {
    let Some(file) = file_of(data) else { return };
    let model = file_of(samples::model_file()).expect("a sample");
    let adapters = vec![Adapter { file: Arc::new(file), scale: 0.5 }];
    if let Err(e) = Weights::load(&model, &LoadOptions { isa: Isa::scalar(), adapters, ..LoadOptions::default() }) {
        assert_message(&e);
    }
}

/// Reads what a file of sums of inputs says of itself.
pub fn hessian(data: &[u8]) {
    let Some(file) = file_of(data) else { return };
    match HessianFile::new(Path::new("h.gguf"), file) {
        Ok(file) => assert!(file.header().inputs.iter().all(|input| !input.tensor().is_empty())),
        Err(e) => assert_message(&e),
    }
}

/// Continues from a saved context: the bytes are what stands behind its kind. Where the first is odd the others get
/// the sum that they should have, which nothing but a fault or somebody who means it would give them.
pub fn saved_context(data: &[u8]) {
    static CONTEXT: LazyLock<(Mutex<Context>, Vec<u8>)> = LazyLock::new(|| {
        let model = trine::open(trine_testkit::trilm()).expect("a bundled model");
        let context = model.context(&ContextOptions { n_ctx: Some(16), ..ContextOptions::default() });
        let mut saved = Vec::new();
        context.save("kind", &[], &mut saved).expect("bytes");
        // Behind the kind stand two counts, no token, the empty cache, and the sum.
        let kind = u32::from_le_bytes(*saved[12..].first_chunk().expect("a length"));
        saved.truncate(16 + kind as usize);
        (Mutex::new(context), saved)
    });
    let (context, head) = &*CONTEXT;
    let Some((sum, rest)) = data.split_first() else { return };
    let mut file = [head, rest].concat();
    if sum % 2 == 1 {
        let sum = Sha256::digest(&file);
        file.extend_from_slice(&sum);
    }
    let mut context = context.lock().unwrap_or_else(PoisonError::into_inner);
    match context.load("kind", &mut &file[..]) {
        Ok(tokens) => assert!(tokens.len() <= 16),
        Err(e) => assert_message(&e),
    }
}
