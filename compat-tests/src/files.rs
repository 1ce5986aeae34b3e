//! GGUF files in memory.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use trine_formats::gguf::{Gguf, Limits, ModelFile, Shard};

/// Reads a file, unpacking `.gz`.
///
/// # Errors
/// It cannot be read or unpacked.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    if path.extension().is_none_or(|e| e != "gz") {
        return Ok(bytes);
    }
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut out)?;
    Ok(out)
}

/// A model of one file from its bytes.
///
/// # Errors
/// Those of the parser.
pub fn model(bytes: Vec<u8>) -> Result<ModelFile> {
    let gguf = Gguf::parse(&bytes, &Limits::default())?;
    let shard = Shard {
        path: PathBuf::new(),
        gguf,
        bytes: Arc::new(bytes),
    };
    Ok(ModelFile::new(vec![shard])?)
}
