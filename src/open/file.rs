//! A GGUF file and, where it is one of a split set, its other shards.

use std::fs;
use std::path::{Path, PathBuf};

use trine_formats::anyprec::AnyPrec;
use trine_formats::gguf::split::{self, ShardName};
use trine_formats::gguf::{Bytes, ErrorKind, Gguf, GgufError, Limits, ModelFile, Shard};

use super::guess::guess;
use super::{OpenError, open_bytes};

/// Opens the file that `path` names, all shards of it when it is one of a split set, without loading any weights.
///
/// With `mmap` the files are mapped read-only, without it they are read into memory.
///
/// # Errors
/// One line per problem, with the path: missing, a directory, not a regular file, empty, not GGUF (and
/// what it looks like instead), cut off, big-endian, damaged, or a shard that is missing.
pub fn open_file(path: impl AsRef<Path>, mmap: bool) -> Result<ModelFile, OpenError> {
    let path = path.as_ref();
    let in_file = |error: GgufError| OpenError::Gguf { path: path.to_owned(), error: Box::new(error) };
    let shard = open_shard(path, mmap)?;
    let count = split::count(&shard.gguf).map_err(in_file)?;
    let mut shards = Vec::new();
    if count == 1 {
        shards.push(shard);
    } else {
        let name = shard_name(path, count)?;
        let mut given = Some(shard);
        for no in 0..count {
            shards.push(match given.take_if(|_| no == name.no) {
                Some(shard) => shard,
                None => open_shard(&name.path(no), mmap).map_err(|error| OpenError::Shard {
                    path: path.to_owned(),
                    number: no + 1,
                    count,
                    error: Box::new(error),
                })?,
            });
        }
    }
    ModelFile::new(shards).map_err(in_file)
}

/// A model whose files are in memory already: one, or all shards of a split one in their order, each with a name for
/// messages.
///
/// ```
/// use std::sync::Arc;
///
/// let bytes = std::fs::read("testdata/models/trilm-wt-5.8m-F16.gguf")?;
/// let file = trine::open::file_in_memory(vec![("model.gguf".into(), Arc::new(bytes))])?;
/// let model = trine::open::load(file, &trine::OpenOptions::default())?;
/// assert_eq!(model.n_ctx_train(), 512);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`open_file`], with the name instead of a path; no files at all.
pub fn file_in_memory(files: Vec<(PathBuf, Bytes)>) -> Result<ModelFile, OpenError> {
    let first = files.first().map_or_else(PathBuf::new, |(name, _)| name.clone());
    if files.is_empty() {
        return Err(OpenError::Empty { path: first });
    }
    let shards: Result<_, OpenError> = files.into_iter().map(|(name, bytes)| shard(name, bytes)).collect();
    ModelFile::new(shards?).map_err(|error| OpenError::Gguf { path: first, error: Box::new(error) })
}

/// The parts of a shard's name, taken from the path as given or from where its link points.
fn shard_name(path: &Path, count: u32) -> Result<ShardName, OpenError> {
    let name = ShardName::parse(path)
        .or_else(|| ShardName::parse(&fs::canonicalize(path).ok()?))
        .ok_or_else(|| OpenError::ShardName { path: path.to_owned(), count })?;
    if name.count != count {
        return Err(OpenError::ShardCount { path: path.to_owned(), count, named: name.count });
    }
    Ok(name)
}

fn open_shard(path: &Path, mmap: bool) -> Result<Shard, OpenError> {
    shard(path.to_owned(), open_bytes(path, mmap)?)
}

/// The file at `path` or of that name, whose bytes are there.
fn shard(path: PathBuf, bytes: Bytes) -> Result<Shard, OpenError> {
    let content: &[u8] = (*bytes).as_ref();
    let parsed = Gguf::parse(content, &Limits::default()).or_else(|e| match e.kind {
        ErrorKind::DataTruncated { .. } => prefix(content).ok_or(e),
        _ => Err(e),
    });
    match parsed {
        Ok(gguf) => Ok(Shard { path, gguf, bytes }),
        Err(e) => Err(match e.kind {
            ErrorKind::Empty => OpenError::Empty { path },
            ErrorKind::Magic { .. } => OpenError::NotGguf { path, looks: guess(content) },
            _ => OpenError::Gguf { path, error: Box::new(e) },
        }),
    }
}

/// The header of an any-precision file that ends early: what there is of it may be a model all the same,
/// which [`AnyPrec::read`] finds out.
fn prefix(content: &[u8]) -> Option<Gguf> {
    let limits = Limits { partial: true, ..Limits::default() };
    let gguf = Gguf::parse(content, &limits).ok()?;
    AnyPrec::is(&gguf.meta).then_some(gguf)
}
