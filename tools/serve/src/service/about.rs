//! Description of a model.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use trine::formats::anyprec::Part;
use trine::formats::gguf::TensorInfo;
use trine::formats::types::TypeId;
use trine::{Model, NumberPath};
use trine_tools::adapters::AdapterArgs;
use trine_tools::bench::describe::billions;
use trine_tools::inspect::AnyPrecReport;
use trine_tools::load::ModelArgs;
use trine_tools::provenance::hash_file;
use trine_tools::text;

use super::card::Card;

/// Description of a model.
pub struct About {
    /// The name of its file.
    pub file: String,
    /// SHA-256 of the bytes of its file, or of its files one after another.
    pub sha256: String,
    /// Version, model, number path and what is added to the model: servers with the same give the same texts.
    pub fingerprint: String,
    /// Its header.
    pub card: Card,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
}

impl About {
    /// Reads the file once more, for its hash.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(model: &Model, file: String, path: NumberPath) -> Result<About> {
        let shards = model.file().shards();
        let sha256 = sha256(shards.iter().map(|s| s.path.as_path()))?;
        let weights = model.weights();
        let path = match (weights.any_precision(), weights.widely_linear(), path) {
            (_, Some(_), NumberPath::I8) => "i8",
            (None, ..) => "exact",
            (Some(_), _, NumberPath::F32) => "f32",
            (Some(_), ..) => "i16",
        };
        let n_params = n_params(model);
        Ok(About {
            fingerprint: format!("b{}-{}-{path}", env!("CARGO_PKG_VERSION"), &sha256[..12]),
            file,
            sha256,
            card: Card { n_params, parameters: billions(n_params), ..Card::of(model.file()) },
            created: now(),
        })
    }

    /// The same where something is added to the model, or keys and values are of other types: the bits of a text depend
    /// on these too, so that the fingerprint has a hash of them behind it.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn with(mut self, args: &ModelArgs) -> Result<About> {
        let AdapterArgs { adapters, control_vectors, blocks } = &args.adapters;
        let types = [args.cache_type_k, args.cache_type_v];
        let usual = adapters.is_empty() && control_vectors.is_empty();
        if usual && types == [TypeId::F16; 2] {
            return Ok(self);
        }
        let mut hash = Sha256::new();
        for list in [adapters, control_vectors] {
            for (path, scale) in list {
                hash.update(sha256(std::iter::once(path.as_path()))?);
                hash.update(scale.to_le_bytes());
            }
            hash.update([0]);
        }
        hash.update(format!("{blocks:?} {types:?}"));
        self.fingerprint += &format!("-{}", &text::hex(&hash.finalize())[..8]);
        Ok(self)
    }
}

/// The hash of files one after another.
fn sha256<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<String> {
    let mut hash = Sha256::new();
    for path in paths {
        let context = || format!("cannot read '{}'", path.display());
        hash_file(&mut hash, path).with_context(context)?;
    }
    Ok(text::hex(&hash.finalize()))
}

/// The weights of a model, as many as it had before it was quantized: the planes and tables of any-precision matrices
/// are no weights.
fn n_params(model: &Model) -> u64 {
    let file = model.file();
    match model.weights().any_precision() {
        None => file.tensors().map(TensorInfo::elements).sum(),
        Some(planes) => {
            let copied = file.tensors().filter(|t| !t.name.contains(Part::INFIX));
            AnyPrecReport::of(planes, file).weights + copied.map(TensorInfo::elements).sum::<u64>()
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
