//! Provenance of a result: the schema of its JSON, the tool, the machine and the models, `docs/json.md`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use trine::{Isa, Model};
use trine_formats::gguf::ModelFile;

use crate::text::hex;
use crate::version;

/// Provenance of a result.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    /// Name and version of the report's form, such as `rperplexity.estimate/1`: the number goes up when fields change
    /// their meaning or go away.
    pub schema: &'static str,
    /// Threads that did the work, where they are of interest.
    pub threads: Option<usize>,
    /// Instruction set of the kernels, where kernels were used.
    pub isa: Option<Isa>,
    /// All files of the models, and of what was added to them.
    pub models: Vec<PathBuf>,
}

/// The files of a model.
pub fn files(model: &ModelFile) -> Vec<PathBuf> {
    let shards = model.shards().iter();
    shards.map(|shard| shard.path.clone()).collect()
}

impl Provenance {
    /// Where a tool looks at files and does not run them; the report names them itself.
    pub fn of(schema: &'static str) -> Provenance {
        Provenance { schema, ..Provenance::default() }
    }

    /// The provenance of a run of a model.
    ///
    /// # Errors
    /// TRINE_ISA cannot be followed.
    pub fn of_run(schema: &'static str, model: &Model) -> Result<Provenance> {
        let mut models = files(model.file());
        models.extend_from_slice(model.weights().added_files());
        Ok(Provenance { schema, threads: Some(model.threads()), isa: Some(Isa::from_env()?), models })
    }

    /// The provenance of work on the weights of a model.
    pub fn of_files(schema: &'static str, model: &ModelFile) -> Provenance {
        Provenance { schema, models: files(model), ..Provenance::default() }
    }

    /// `report`, an object, with the schema and the provenance before its own fields.
    ///
    /// The models are read once more for their hashes, a few seconds for each ten gigabytes. One that cannot be read
    /// any more has none.
    pub fn before(&self, report: Value) -> Value {
        let models = self.models.iter().map(|path| describe(path)).collect();
        let isa = self.isa.map(Isa::name);
        let mut whole = head(self.schema, isa, self.threads, models);
        if let Value::Object(own) = report {
            whole.extend(own);
        }
        Value::Object(whole)
    }
}

/// The two fields that every report begins with; `models` are [described](describe) files.
pub fn head(schema: &str, isa: Option<&str>, threads: Option<usize>, models: Vec<Value>) -> Map<String, Value> {
    let fields = [
        ("schema", json!(schema)),
        (
            "provenance",
            json!({
                "tool": schema.split(['.', '/']).next(),
                "version": version::VERSION,
                "commit": version::COMMIT,
                "processor": processor(),
                "isa": isa,
                "threads": threads,
                "models": models,
            }),
        ),
    ];
    let named = fields.map(|(name, value)| (name.to_owned(), value));
    named.into_iter().collect()
}

/// One file: path, bytes, SHA-256.
pub fn describe(path: &Path) -> Value {
    let mut hash = Sha256::new();
    let bytes = hash_file(&mut hash, path).ok();
    json!({
        "file": path.display().to_string(),
        "bytes": bytes,
        "sha256": bytes.map(|_| hex(&hash.finalize())),
    })
}

/// Adds the bytes of a file to a hash and says how many they were. The file is read anew: where it is mapped, looking
/// at the bytes there would make all of them resident.
///
/// # Errors
/// The file cannot be read.
pub fn hash_file(hash: &mut Sha256, path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            n => {
                hash.update(&buffer[..n]);
                bytes += n as u64;
            }
        }
    }
}

/// The processor's name, where Linux tells.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|l| l.starts_with("model name"));
    let name = line.and_then(|l| l.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}
