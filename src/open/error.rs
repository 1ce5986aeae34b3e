//! Problems of a path that should be a model.

use std::io;
use std::path::PathBuf;

use trine_formats::gguf::GgufError;

use crate::kernels::IsaError;
use crate::model::ModelError;
use crate::tokenizer::TokenizerError;

/// Why a model cannot be opened. Displayed it is one line with the path, the problem and, where there is something,
/// what to do about it; the causes are part of the line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum OpenError {
    #[error("'{path}' does not exist")]
    Missing { path: PathBuf },
    #[error("'{path}' is a link to a file that does not exist")]
    DanglingLink { path: PathBuf },
    #[error("'{path}' is a directory; give a .gguf file")]
    Directory { path: PathBuf },
    #[error("'{path}' is not a regular file; a model is read at any offset, so save it to a file first")]
    NotRegular { path: PathBuf },
    #[error("cannot open '{path}': {error}")]
    Open { path: PathBuf, error: io::Error },
    #[error("cannot map '{path}', try without mmap (--no-mmap): {error}")]
    Map { path: PathBuf, error: io::Error },
    #[error("cannot read '{path}': {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error("'{path}' does not fit into memory; use the mapped mode")]
    TooLarge { path: PathBuf },
    #[error("'{path}' is empty; was a download interrupted?")]
    Empty { path: PathBuf },
    #[error("'{path}' is not a GGUF file: it looks like {looks}")]
    NotGguf { path: PathBuf, looks: String },
    #[error("'{path}': {error}")]
    Gguf { path: PathBuf, error: Box<GgufError> },
    #[error(
        "'{path}' is one of {count} shards, but its name does not end in -00001-of-{count:05}.gguf: rename the shards so that the others can be found"
    )]
    ShardName { path: PathBuf, count: u32 },
    #[error("'{path}' says in its metadata that it is one of {count} shards, its name says {named}")]
    ShardCount { path: PathBuf, count: u32, named: u32 },
    /// `number` counts from 1.
    #[error("shard {number} of {count} of '{path}' cannot be used: {error}")]
    Shard { path: PathBuf, number: u32, count: u32, error: Box<OpenError> },
    #[error("'{path}': {error}")]
    Model { path: PathBuf, error: Box<ModelError> },
    #[error("'{path}': {error}")]
    Tokenizer { path: PathBuf, error: Box<TokenizerError> },
    #[error("'{path}': the tokenizer has {tokens} tokens, the model {logits} logits: the file is damaged")]
    Vocabulary { path: PathBuf, tokens: usize, logits: usize },
    #[error("cannot start {threads} threads: {error}")]
    Threads { threads: usize, error: std::io::Error },
    #[error(transparent)]
    Isa(#[from] IsaError),
}
