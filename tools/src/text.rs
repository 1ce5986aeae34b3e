//! Texts from the command line, files and standard input.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use trine_formats::gguf::ModelFile;
use trine_formats::limited::{open_regular, read_up_to};

use crate::inputs;

/// Most bytes that are taken from a pipe: it does not say how many there will be.
const MAX_PIPE: u64 = 256 << 20;
/// Most bytes of a small file, such as a list of rules or a template.
pub const MAX_SMALL: u64 = 16 << 20;

/// The bytes of a file that is read once, front to back; a pipe will do.
///
/// # Errors
/// Missing, a directory, unreadable.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    if path.is_dir() {
        bail!("'{shown}' is a directory; give a file");
    }
    inputs::add(path);
    read_at_most(path, u64::MAX - 1).with_context(|| format!("cannot read '{shown}'"))
}

/// The same of a file that cannot have more than [`MAX_SMALL`] bytes.
///
/// # Errors
/// As [`read_file`]; a longer file.
pub fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    inputs::add(path);
    read_at_most(path, MAX_SMALL)
}

/// The text of a file that [`read_small`] reads; errors name the file.
///
/// # Errors
/// As [`read_small`]; not UTF-8.
pub fn read_small_text(path: &Path) -> Result<String> {
    let from = format!("'{}'", path.display());
    utf8(read_small(path).context(from.clone())?, &from)
}

fn read_at_most(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let meta = fs::metadata(path)?;
    if meta.is_file() {
        return read_up_to(open_regular(path)?, meta.len(), max);
    }
    let file = File::open(path)?;
    if is_endless(&meta) && !file.is_terminal() {
        return Err(io::Error::other("it is a device, which may have no end"));
    }
    read_up_to(file, 0, max.min(MAX_PIPE))
}

/// True if a file is a device rather than a pipe.
#[cfg(unix)]
fn is_endless(meta: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let kind = meta.file_type();
    kind.is_char_device() || kind.is_block_device()
}

#[cfg(not(unix))]
fn is_endless(_: &fs::Metadata) -> bool {
    false
}

/// The text of a file as llama.cpp's `-f` takes it: one line break at its end is left out.
///
/// # Errors
/// Unreadable, empty, not UTF-8.
pub fn read_prompt(path: &Path) -> Result<String> {
    prompt(read_file(path)?, path)
}

/// The same of the bytes that were read from `path`.
///
/// # Errors
/// Empty, not UTF-8.
pub fn prompt(bytes: Vec<u8>, path: &Path) -> Result<String> {
    utf8(prompt_bytes(bytes, path)?, &format!("'{}'", path.display()))
}

/// The bytes of that text, UTF-8 or not.
///
/// # Errors
/// Unreadable, empty.
pub fn read_prompt_bytes(path: &Path) -> Result<Vec<u8>> {
    prompt_bytes(read_file(path)?, path)
}

fn prompt_bytes(mut bytes: Vec<u8>, path: &Path) -> Result<Vec<u8>> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.is_empty() {
        bail!("'{}' is empty", path.display());
    }
    Ok(bytes)
}

/// All of standard input.
///
/// # Errors
/// The system's error.
pub fn read_stdin() -> Result<Vec<u8>> {
    read_up_to(io::stdin().lock(), 0, MAX_PIPE).context("cannot read standard input")
}

/// The text of `bytes`; `from` says in the error where they came from.
///
/// # Errors
/// Not UTF-8.
pub fn utf8(bytes: Vec<u8>, from: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| anyhow!("{from} is not UTF-8 at byte {}", e.utf8_error().valid_up_to()))
}

/// Replaces the escapes that llama.cpp's tools know: `\n \r \t \' \" \\` and `\xHH`; others stay.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some((&escaped, after)) = after.split_first().filter(|_| byte == b'\\') else {
            out.push(byte);
            continue;
        };
        rest = after;
        match escaped {
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'\'' | b'"' | b'\\' => out.push(escaped),
            _ => match hex_byte(after).filter(|_| escaped == b'x') {
                Some(value) => {
                    out.push(value);
                    rest = &after[2..];
                }
                None => out.extend([b'\\', escaped]),
            },
        }
    }
    out
}

/// SHA-256 of some bytes, in hexadecimal.
pub fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    parts.into_iter().for_each(|p| hash.update(p));
    hex(&hash.finalize())
}

/// SHA-256 of a model: of its files, one after the other.
pub fn model_sha256(model: &ModelFile) -> String {
    sha256(model.shards().iter().map(|shard| (*shard.bytes).as_ref()))
}

/// Bytes in hexadecimal, as hashes are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn hex_byte(text: &[u8]) -> Option<u8> {
    let digits = text.get(..2)?;
    let digit = |d: u8| char::from(d).to_digit(16);
    Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
}

/// Token ids separated by white space or commas, or as a JSON array.
///
/// # Errors
/// No ids, something that is not an id, an id outside of the vocabulary.
pub fn parse_tokens(text: &str, n_vocab: usize) -> Result<Vec<u32>> {
    let text = text.trim();
    let list = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let words = list.split(|c: char| c.is_whitespace() || c == ',').filter(|w| !w.is_empty());
    let mut ids = Vec::new();
    for (i, word) in words.enumerate() {
        let Ok(id) = word.parse::<u32>() else {
            let word: String = word.chars().take(20).collect();
            bail!("entry {i}, \"{}\", is not a token id", word.escape_debug());
        };
        if id as usize >= n_vocab {
            bail!("entry {i}, token {id}, is outside the vocabulary of {n_vocab}");
        }
        ids.push(id);
    }
    if ids.is_empty() {
        bail!("there are no token ids");
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::{parse_tokens, unescape};

    #[test]
    fn escapes() {
        assert_eq!(unescape(br#"a\n\t\r\'\"\\n\x41\x4g\q\"#), b"a\n\t\r'\"\\nA\\x4g\\q\\");
        assert_eq!(unescape(br"\x4"), br"\x4");
        assert_eq!(unescape(br"\xff"), b"\xff");
    }

    #[test]
    fn token_lists() {
        for text in ["1 2\n3", "1,2,3", " [1, 2, 3]\n", "1\t2 , 3,"] {
            assert_eq!(parse_tokens(text, 10).unwrap(), [1, 2, 3]);
        }
        for (text, error) in [
            ("", "no token ids"),
            ("[]", "no token ids"),
            ("1 x2", "entry 1, \"x2\""),
            ("1 -2", "\"-2\""),
            ("1 10", "token 10, is outside the vocabulary of 10"),
            ("[1 2", "\"[1\""),
        ] {
            let e = parse_tokens(text, 10).unwrap_err().to_string();
            assert!(e.contains(error), "{text}: {e}");
        }
    }
}
