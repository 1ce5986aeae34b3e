//! An evaluated text as a file from which another run continues.
//!
//! ```text
//! 0    "trine-kv"
//! 8    version, u32
//! 12   length of the kind, u32
//! 16   kind: lines of text, what the file can be used with
//! ..   tokens, u64
//! ..   how many of them were evaluated, u64
//! ..   token ids, u32 each
//! ..   keys and values of those that were evaluated: src/kv/saved.rs
//! ..   SHA-256 of all bytes before
//! ```
//! Numbers are little-endian.

use std::io::{self, ErrorKind, Read, Write};

use sha2::{Digest, Sha256};

use crate::kv::{PagePool, Sequence};

const MAGIC: &[u8; 8] = b"trine-kv";
const VERSION: u32 = 1;
/// Longest kind that is read.
const MOST_KIND: usize = 1 << 16;

/// Why a file cannot be continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// Another file.
    #[error("it is no saved context of trine")]
    Foreign,
    /// A form that this program does not know.
    #[error("it has version {0} of its form, and this program knows version {VERSION}")]
    Version(u32),
    /// It was made with another model, or in another way.
    #[error("it was made with {was}, and now it would be used with {wanted}")]
    Kind {
        /// The first line of the kind that differs.
        was: String,
        /// The value in this run.
        wanted: String,
    },
    /// It holds more than there is room for.
    #[error("it holds {tokens} tokens, and a context of {n_ctx} has no room for them; use a larger -c")]
    TooLong {
        /// Tokens in the file.
        tokens: u64,
        /// Size of the context.
        n_ctx: usize,
    },
    /// Bytes are missing, too many, or not those that were written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// It cannot be read.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for SavedError {
    fn from(e: io::Error) -> SavedError {
        match e.kind() {
            ErrorKind::UnexpectedEof => SavedError::Damaged("it ends early"),
            _ => SavedError::Io(e),
        }
    }
}

/// Bytes on their way, and their hash.
struct Hashed<T> {
    inner: T,
    hash: Sha256,
}

impl<T> Hashed<T> {
    fn new(inner: T) -> Hashed<T> {
        Hashed { inner, hash: Sha256::new() }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }
}

impl<R: Read> Hashed<R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Writes a text for [`read`]. `tokens` are those of `seq`, and after them those that are known and not evaluated yet.
/// `kind`, lines of text, says what the result depends on beside the tokens: the hashes of files, the bits, the form of
/// the KV cache.
///
/// # Errors
/// Errors of `out`.
pub fn write(kind: &str, tokens: &[u32], seq: &Sequence, out: &mut dyn Write) -> io::Result<()> {
    let mut out = Hashed::new(out);
    out.write_all(MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&(kind.len() as u32).to_le_bytes())?;
    out.write_all(kind.as_bytes())?;
    out.write_all(&(tokens.len() as u64).to_le_bytes())?;
    out.write_all(&(seq.len() as u64).to_le_bytes())?;
    for id in tokens {
        out.write_all(&id.to_le_bytes())?;
    }
    seq.write(&mut out)?;
    let Hashed { inner, hash } = out;
    inner.write_all(&hash.finalize())
}

/// The place for a text that is read.
pub struct Room<'a> {
    /// The kind that it must have.
    pub kind: &'a str,
    /// Most tokens.
    pub n_ctx: usize,
    /// Tokens of the model.
    pub n_vocab: usize,
    /// Where its pages come from.
    pub pages: &'a PagePool,
}

/// The tokens that [`write()`] was given, and the sequence of the first of them. `make_room` is told how many pages it takes
/// before it takes them.
///
/// # Errors
/// A file of another form or kind, too many tokens, damage; an error of the kind `OutOfMemory` where there are too few
/// pages.
pub fn read(
    room: &Room<'_>,
    make_room: &mut dyn FnMut(usize),
    from: &mut dyn Read,
) -> Result<(Vec<u32>, Sequence), SavedError> {
    let mut from = Hashed::new(from);
    let magic = from.array().map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => SavedError::Foreign,
        _ => SavedError::Io(e),
    })?;
    if &magic != MAGIC {
        return Err(SavedError::Foreign);
    }
    match from.u32()? {
        VERSION => {}
        other => return Err(SavedError::Version(other)),
    }
    let bytes = from.u32()? as usize;
    if bytes > MOST_KIND {
        return Err(SavedError::Damaged("what it was made with is too long"));
    }
    let mut was = vec![0; bytes];
    from.read_exact(&mut was)?;
    let was = String::from_utf8_lossy(&was);
    compare(&was, room.kind)?;

    let (n, evaluated) = (from.u64()?, from.u64()?);
    let n_ctx = room.n_ctx;
    if n > n_ctx as u64 {
        return Err(SavedError::TooLong { tokens: n, n_ctx });
    }
    if evaluated > n {
        return Err(SavedError::Damaged("it counts more than it holds"));
    }
    let (n, evaluated) = (n as usize, evaluated as usize);
    let tokens: io::Result<Vec<u32>> = (0..n).map(|_| from.u32()).collect();
    let tokens = tokens?;
    if tokens.iter().any(|&id| id as usize >= room.n_vocab) {
        return Err(SavedError::Damaged("it has a token that the model has not"));
    }
    make_room(evaluated.div_ceil(room.pages.layout().positions));
    let sequence = room.pages.read_sequence(evaluated, &mut from)?;
    let Hashed { inner, hash } = from;
    let mut sum = [0; 32];
    inner.read_exact(&mut sum)?;
    if sum[..] != hash.finalize()[..] {
        return Err(SavedError::Damaged("its bytes do not have their sum"));
    }
    if inner.read(&mut [0])? > 0 {
        return Err(SavedError::Damaged("there are bytes behind its end"));
    }
    Ok((tokens, sequence))
}

/// # Errors
/// The first line that is not the same.
fn compare(was: &str, wanted: &str) -> Result<(), SavedError> {
    if was == wanted {
        return Ok(());
    }
    let lines = was.lines().zip(wanted.lines());
    let mut lines = lines.filter(|(was, wanted)| was != wanted);
    let (was, wanted) = lines.next().unwrap_or((was, wanted));
    let text = |line: &str| -> String { line.chars().filter(|c| !c.is_control()).take(200).collect() };
    Err(SavedError::Kind { was: text(was), wanted: text(wanted) })
}
