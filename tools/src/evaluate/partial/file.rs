//! Files of partial results.
//!
//! ```text
//! {"schema":"rperplexity.partial/1","of":"perplexity","chunks":655, ..}     what was measured
//! {"chunk":20,"sums":"40a1..","check":"5f0c9a17"}                            a line for each chunk, counted from 0
//! ```
//!
//! `sums` are the words of [`ChunkSums`](trine::eval::partial::ChunkSums), 16 hexadecimal digits each, and `check` is the
//! beginning of a hash of the first line and of them. A line is written when its chunk is done, so that a run that is
//! killed loses no chunk; a last line that is not whole is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};
use trine_formats::limited::{open_regular, read_regular};

use crate::inputs;
use crate::text::hex;

/// The option that names a file.
pub(super) const OPTION: &str = "--partial";
/// Form of the files.
pub(super) const SCHEMA: &str = "rperplexity.partial/1";
/// Hexadecimal digits of a word.
const DIGITS: usize = 16;
/// Bytes of the hash of a line.
const CHECK: usize = 4;

/// The results in a file.
pub(super) struct Partial {
    pub head: Value,
    pub chunks: BTreeMap<usize, Vec<u64>>,
    /// Bytes of its whole lines.
    bytes: usize,
}

impl Partial {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read or is no such file.
    pub fn read(path: &Path) -> Result<Partial> {
        let shown = path.display();
        // A pipe would be waited for.
        let bytes = read_regular(path, u64::MAX - 1).with_context(|| format!("cannot open '{shown}'"))?;
        Partial::parse(&bytes).with_context(|| format!("'{shown}'"))
    }

    fn parse(bytes: &[u8]) -> Result<Partial> {
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        let mut lines = bytes[..whole].split_inclusive(|&b| b == b'\n').enumerate();
        let head = lines.next().and_then(|(_, line)| serde_json::from_slice::<Value>(line).ok());
        let head = head.filter(|head| head["schema"] == SCHEMA);
        let head = head.ok_or_else(|| anyhow!("no file that {OPTION} wrote: its first line does not say {SCHEMA}"))?;
        let mut chunks = BTreeMap::new();
        for (index, line) in lines {
            let (chunk, words) = parse_chunk(line, &head)
                .ok_or_else(|| anyhow!("line {} is no result of a chunk, or damaged", index + 1))?;
            if chunks.insert(chunk, words).is_some() {
                bail!("line {} is another result of chunk {}", index + 1, chunk + 1);
            }
        }
        Ok(Partial { head, chunks, bytes: whole })
    }

    /// The first thing in which two files differ that must be the same in both.
    pub fn difference(&self, head: &Value) -> Option<String> {
        let (Value::Object(own), Value::Object(other)) = (&self.head, head) else { return Some("form".to_owned()) };
        let names = own.keys().chain(other.keys());
        names.into_iter().find(|name| own.get(*name) != other.get(*name)).cloned()
    }
}

/// The hash of a chunk's sums, as a line has it.
fn check(head: &Value, chunk: u64, sums: &str) -> String {
    hex(&Sha256::digest(format!("{head}\n{chunk}\n{sums}"))[..CHECK])
}

/// The chunk of a line, which is one of those that `head` counts, and its words.
fn parse_chunk(line: &[u8], head: &Value) -> Option<(usize, Vec<u64>)> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let count = head["chunks"].as_u64().unwrap_or(0);
    let chunk = line["chunk"].as_u64().filter(|&chunk| chunk < count)?;
    let sums = line["sums"].as_str().filter(|sums| line["check"] == check(head, chunk, sums))?;
    let digits = sums.as_bytes();
    let word = |digits: &[u8]| {
        let digits = str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u64::from_str_radix(digits, 16).ok()
    };
    let words: Option<Vec<u64>> = digits.chunks(DIGITS).map(word).collect();
    let whole = digits.len().is_multiple_of(DIGITS);
    Some((usize::try_from(chunk).ok()?, words.filter(|_| whole)?))
}

/// A file that results are added to.
pub(super) struct Writer {
    file: File,
    head: Value,
}

impl Writer {
    /// Begins a file, or goes on with one of the same work, and says which chunks it has.
    ///
    /// # Errors
    /// The file is another's, is being written by another run, or cannot be written.
    pub fn open(path: &Path, head: &Value) -> Result<(Writer, BTreeSet<usize>)> {
        let shown = path.display();
        inputs::spare(path, OPTION)?;
        let exists = path.exists();
        if exists {
            // A device or a pipe would be waited for.
            open_regular(path).with_context(|| format!("cannot open '{shown}'"))?;
        }
        let cannot = || format!("cannot write '{shown}'");
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path).with_context(cannot)?;
        file.try_lock()
            .map_err(|_| anyhow!("'{shown}' is being written by another run: give each run its own file"))?;
        let mut done = BTreeSet::new();
        if exists && file.metadata().with_context(cannot)?.len() > 0 {
            let found = Partial::read(path)?;
            if let Some(name) = found.difference(head) {
                bail!("'{shown}' is of other work, its {name:?} is not the same: give another file to {OPTION}");
            }
            file.set_len(found.bytes as u64).with_context(cannot)?;
            file.seek(SeekFrom::End(0)).with_context(cannot)?;
            done.extend(found.chunks.into_keys());
        } else {
            file.write_all(format!("{head}\n").as_bytes()).with_context(cannot)?;
        }
        Ok((Writer { file, head: head.clone() }, done))
    }

    /// Adds the result of a chunk.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn chunk(&mut self, chunk: usize, words: &[u64]) -> io::Result<()> {
        let sums: String = words.iter().map(|word| format!("{word:016x}")).collect();
        let check = check(&self.head, chunk as u64, &sums);
        self.file.write_all(format!("{{\"chunk\":{chunk},\"sums\":\"{sums}\",\"check\":\"{check}\"}}\n").as_bytes())
    }
}
