//! Why a folder was not converted.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use trine_formats::gguf::GgufError;
use trine_formats::gguf::write::WriteError;
use trine_formats::safetensors::SafetensorsError;

/// Why no file was written. Every message is one line.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum ConvertError {
    #[error("cannot {action} '{path}': {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("'{0}' is not a folder; give the folder of a checkpoint, the one that holds config.json")]
    NotAFolder(PathBuf),
    #[error("'{folder}' has no {file}: {hint}")]
    Missing { folder: PathBuf, file: String, hint: &'static str },
    #[error(
        "a drafter ({0}) takes the tokenizer of the model that it drafts for; name its folder with --target-model-dir"
    )]
    TargetNeeded(&'static str),
    #[error(
        "the drafter has a vector for its mask token in {0}, a file of PyTorch, which can run code when it is read and is not supported; use llama.cpp's converter"
    )]
    MaskVector(&'static str),
    #[error("--target-model-dir is for drafters, and this is a model of architecture {0}; leave it out")]
    TargetUnused(&'static str),
    #[error("'{path}' has {len} bytes, more than the {max} that are read of such a file")]
    TooLarge { path: PathBuf, len: u64, max: u64 },
    #[error("'{path}' is not JSON: {why}")]
    Json { path: PathBuf, why: String },
    #[error("'{path}': {source}")]
    Safetensors { path: PathBuf, source: SafetensorsError },
    #[error("'{path}' and the files it names disagree: {problems}")]
    Index { path: PathBuf, problems: Problems },
    #[error("config.json: {0}")]
    Config(String),
    #[error("config.json: architecture '{found}' is not one that can be converted; known are {known}")]
    UnknownArchitecture { found: String, known: String },
    #[error("the weights do not fit config.json: {0}")]
    Tensors(Problems),
    #[error("{file}: {what}")]
    Tokenizer { file: &'static str, what: String },
    #[error(
        "tokenizer.json: which pre-tokenizer this is could not be found out (probe {probe}): {what}; if you know it, say --pre NAME, for example --pre llama-bpe"
    )]
    UnknownPre { probe: String, what: String },
    #[error("tensor '{tensor}' holds {value} in row {row}, column {column}: the checkpoint is damaged")]
    NotFinite { tensor: String, row: u64, column: u64, value: f32 },
    #[error(
        "tensor '{tensor}': the two bits of row {row}, column {column} are 3, and digits are 0, 1 and 2; these are no packed ternary weights"
    )]
    PackedCode { tensor: String, row: u64, column: u64 },
    #[error("tensor '{tensor}': {value:e} in row {row} is too large for {ty}; choose --outtype bf16 or f32")]
    Overflow { tensor: String, row: u64, value: f32, ty: String },
    #[error(
        "{ty} cannot hold these matrices exactly: {problems}; keep them as F16 with --fallback, or ternarize latent weights with --ternary bitnet or --ternary trilm"
    )]
    NotTernary { ty: String, problems: Problems },
    #[error(
        "{ty} cannot hold these matrices without rounding, as whole numbers times a scale for every 32: {problems}; keep them as F16 with --fallback, or make the file with --outtype f16 and quantize it with rquantize"
    )]
    NotExact { ty: String, problems: Problems },
    #[error("the checkpoint is damaged: {0}")]
    Damaged(String),
    #[error("tensor '{tensor}' has rows of {columns} weights, which {ty} cannot hold")]
    RowType { tensor: String, columns: u64, ty: String },
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the output cannot be laid out: {0}")]
    Layout(#[from] GgufError),
}

/// Several things that are wrong at once, told in one line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Problems {
    told: Vec<String>,
    more: usize,
}

/// Number of problems that are spelled out; the rest are counted.
const TOLD: usize = 12;

impl Problems {
    /// Adds one.
    pub fn push(&mut self, problem: impl Into<String>) {
        if self.told.len() < TOLD {
            self.told.push(problem.into());
        } else {
            self.more += 1;
        }
    }

    /// True if nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told.join("; "))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
