//! Opens models: maps or reads the file, finds the other shards, and says in one line what is wrong.

use std::fs::{self, File};
use std::io::{ErrorKind as Io, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use memmap2::Mmap;
use trine_formats::anyprec::AnyPrec;
use trine_formats::gguf::split::{self, ShardName};
use trine_formats::gguf::{ByteStore, Bytes, ErrorKind, Gguf, Limits, ModelFile, Shard};

/// Opens the model that `path` names, all shards of it when it is one of a split set.
///
/// With `mmap` the files are mapped read-only, without it they are read into memory.
///
/// # Errors
/// One line per problem, with the path: missing, a directory, not a regular file, empty, not GGUF (and
/// what it looks like instead), cut off, big-endian, damaged, or a shard that is missing.
pub fn open_model(path: impl AsRef<Path>, mmap: bool) -> Result<ModelFile> {
    let path = path.as_ref();
    let shard = open_shard(path, mmap)?;
    let in_file = || format!("'{}'", path.display());
    let count = split::count(&shard.gguf).with_context(in_file)?;
    let mut shards = Vec::new();
    if count == 1 {
        shards.push(shard);
    } else {
        let name = shard_name(path, count)?;
        let mut given = Some(shard);
        for no in 0..count {
            let sibling = name.path(no);
            shards.push(match given.take_if(|_| no == name.no) {
                Some(shard) => shard,
                None => open_shard(&sibling, mmap).with_context(|| {
                    format!(
                        "shard {} of {count} of '{}' cannot be used",
                        no + 1,
                        path.display()
                    )
                })?,
            });
        }
    }
    ModelFile::new(shards).with_context(in_file)
}

/// What the name of a shard says, taken from the path as given or from where its link points.
fn shard_name(path: &Path, count: u32) -> Result<ShardName> {
    let name = ShardName::parse(path)
        .or_else(|| ShardName::parse(&fs::canonicalize(path).ok()?))
        .ok_or_else(|| {
            anyhow!(
                "'{}' is one of {count} shards, but its name does not end in -00001-of-{count:05}.gguf: rename the shards so that the others can be found",
                path.display()
            )
        })?;
    if name.count != count {
        bail!(
            "'{}' says in its metadata that it is one of {count} shards, its name says {}",
            path.display(),
            name.count
        );
    }
    Ok(name)
}

fn open_shard(path: &Path, mmap: bool) -> Result<Shard> {
    let bytes = open_bytes(path, mmap)?;
    let content: &[u8] = (*bytes).as_ref();
    let parsed = Gguf::parse(content, &Limits::default()).or_else(|e| match e.kind {
        ErrorKind::DataTruncated { .. } => prefix(content).ok_or(e),
        _ => Err(e),
    });
    let gguf = parsed.map_err(|e| match e.kind {
        ErrorKind::Empty => anyhow!("'{}' is empty; was a download interrupted?", path.display()),
        ErrorKind::Magic { .. } => anyhow!(
            "'{}' is not a GGUF file: it looks like {}",
            path.display(),
            guess(content)
        ),
        _ => anyhow::Error::new(e).context(format!("'{}'", path.display())),
    })?;
    Ok(Shard {
        path: path.to_owned(),
        gguf,
        bytes,
    })
}

/// The header of an any-precision file that ends early: what there is of it may be a model all the same,
/// which [`AnyPrec::read`] finds out.
fn prefix(content: &[u8]) -> Option<Gguf> {
    let limits = Limits {
        partial: true,
        ..Limits::default()
    };
    let gguf = Gguf::parse(content, &limits).ok()?;
    AnyPrec::is(&gguf.meta).then_some(gguf)
}

/// The bytes of a regular file, mapped or read.
pub fn open_bytes(path: &Path, mmap: bool) -> Result<Bytes> {
    let shown = path.display();
    let meta = fs::metadata(path).map_err(|e| match e.kind() {
        Io::NotFound if path.is_symlink() => {
            anyhow!("'{shown}' is a link to a file that does not exist")
        }
        Io::NotFound => anyhow!("'{shown}' does not exist"),
        _ => anyhow::Error::new(e).context(format!("cannot open '{shown}'")),
    })?;
    if meta.is_dir() {
        bail!("'{shown}' is a directory; give a .gguf file");
    }
    if !meta.is_file() {
        bail!(
            "'{shown}' is not a regular file; a model is read at any offset, so save it to a file first"
        );
    }
    let mut file = File::open(path).with_context(|| format!("cannot open '{shown}'"))?;
    if mmap && meta.len() > 0 {
        // SAFETY: the map is read-only and shared with nobody who writes in this process. Like every
        // program that maps its model, we rely on no other process truncating the file meanwhile;
        // `--no-mmap` is there for who cannot.
        let map = unsafe { Mmap::map(&file) }
            .with_context(|| format!("cannot map '{shown}'; try --no-mmap"))?;
        return Ok(Arc::new(Mapped(map)));
    }
    let mut bytes = Vec::new();
    let room = usize::try_from(meta.len()).unwrap_or(usize::MAX);
    bytes
        .try_reserve_exact(room)
        .map_err(|_| anyhow!("'{shown}' does not fit into memory; use the mapped mode"))?;
    file.read_to_end(&mut bytes)
        .with_context(|| format!("cannot read '{shown}'"))?;
    Ok(Arc::new(bytes))
}

/// A mapped file.
struct Mapped(Mmap);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl ByteStore for Mapped {
    fn release(&self, range: std::ops::Range<usize>) {
        #[cfg(unix)]
        {
            // Whole pages inside the range; the pages at its ends belong to the neighbours too.
            const PAGE: usize = 1 << 16;
            let start = range.start.next_multiple_of(PAGE);
            let len = (range.end / PAGE * PAGE).saturating_sub(start);
            if len > 0 {
                // SAFETY: the map is read-only and backed by the file, so that a dropped page is read
                // again with the same bytes. Failure changes nothing.
                let _ = unsafe {
                    self.0
                        .unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len)
                };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    fn need(&self, range: std::ops::Range<usize>) {
        // Failure changes nothing.
        #[cfg(unix)]
        let _ = self
            .0
            .advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        #[cfg(not(unix))]
        let _ = range;
    }
}

/// What a file that is not GGUF seems to be.
fn guess(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(512)];
    let text = head.trim_ascii_start();
    let starts =
        |s: &str| text.len() >= s.len() && text[..s.len()].eq_ignore_ascii_case(s.as_bytes());
    let known = [
        ("<!doctype", "a web page; the download went wrong"),
        ("<html", "a web page; the download went wrong"),
        (
            "version https://git-lfs",
            "a git-lfs pointer; fetch the model itself with `git lfs pull`",
        ),
        ("{", "JSON"),
        (
            "PK\x03\x04",
            "a zip archive or a PyTorch checkpoint; convert it to GGUF first",
        ),
        ("lmgg", "an old GGML model; convert it to GGUF first"),
        ("fmgg", "an old GGML model; convert it to GGUF first"),
        ("tjgg", "an old GGML model; convert it to GGUF first"),
    ];
    if let Some((_, what)) = known.iter().find(|(magic, _)| starts(magic)) {
        return (*what).to_owned();
    }
    if head.starts_with(b"\x1f\x8b") {
        return "a gzip archive; unpack it first".to_owned();
    }
    if head.len() > 9 && head[8] == b'{' && head[4..8] == [0; 4] {
        return "a safetensors file; convert it to GGUF first".to_owned();
    }
    if head.iter().all(|&b| b == 0) {
        return "nothing but zero bytes: an interrupted conversion or download".to_owned();
    }
    let line = text.split(|&b| b == b'\n').next().unwrap_or_default();
    match std::str::from_utf8(&line[..line.len().min(40)]) {
        Ok(line) if !line.contains(|c: char| c.is_control() && c != '\t' && c != '\r') => {
            format!(
                "text, it starts with \"{}\"",
                line.trim_end().escape_default()
            )
        }
        _ => format!(
            "binary data, it starts with \"{}\"",
            head[..head.len().min(8)].escape_ascii()
        ),
    }
}
