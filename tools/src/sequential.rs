//! Error feedback layer by layer: from a text and a model to Hessians that are measured while matrices are rounded.

use std::path::Path;

use anyhow::{Context, Result};
use trine::eval::Chunks;
use trine::eval::hessian::Walk;
use trine::model::LoadOptions;
use trine::quant::gptq::Calibration;
use trine::tokenizer::Tokenizer;
use trine::{Isa, Pool, sequential};
use trine_formats::gguf::PackingOptions;
use trine_formats::hessian::Origin;

use crate::load;
use crate::text::{self, model_sha256, sha256};

/// The text that inputs are measured on.
pub struct Text<'a> {
    /// Its file.
    pub path: &'a Path,
    /// Chunks of it at most.
    pub chunks: usize,
    /// Tokens of a chunk.
    pub ctx_size: usize,
}

/// The Hessians of the model in the file `model`.
///
/// # Errors
/// A text that is too short; a model that cannot be loaded or taken layer by layer.
pub fn calibration(text: &Text<'_>, model: &Path, packing: &PackingOptions, threads: usize) -> Result<Calibration> {
    let place = || format!("--sequential '{}'", text.path.display());
    let bytes = text::read_file(text.path)?;
    let dataset_sha256 = sha256([&bytes[..]]);
    let file = load::open(model, true)?;
    let tokenizer = Tokenizer::from_metadata(file.meta()).with_context(|| format!("'{}'", model.display()))?;
    let tokens = tokenizer.encode(&text::prompt(bytes, text.path)?, true, false).with_context(place)?;
    let chunks = Chunks::new(tokens, text.ctx_size, tokenizer.text_bos(), Some(text.chunks)).with_context(place)?;
    if chunks.count() < text.chunks {
        note!("warning: the text has only {} chunks of {} tokens", chunks.count(), text.ctx_size);
    }
    let origin = Origin {
        model_sha256: model_sha256(&file),
        dataset: text.path.display().to_string(),
        dataset_sha256,
        chunk_size: u32::try_from(text.ctx_size).context("-c is too large")?,
        first_chunk: 0,
        special: false,
    };
    let options = LoadOptions { isa: Isa::from_env()?, packing: packing.clone(), ..LoadOptions::default() };
    let pool = Pool::new(threads).with_context(|| format!("cannot start {threads} threads"))?;
    let walk = Walk::new(file, options, pool, chunks, origin).with_context(|| format!("'{}'", model.display()))?;
    Ok(sequential::calibration(walk))
}
