//! Unigram model of T5-like vocabularies (`tokenizer.ggml.model` = `t5`).
//!
//! The text is normalized (a table of replacements, white space), then Viterbi finds the segmentation
//! with the highest sum of scores.

use trine_formats::gguf::{Array, ErrorKind, GgufError, Metadata, Value};

use super::error::TokenizerError;
use super::trie::Trie;
use super::vocab::{NORMAL, UNUSED, USER_DEFINED, Vocab};

const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
/// Penalty of a character that is no token, below the lowest score.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The model; attributes are those of the file, before special tokens are settled by text.
pub(super) struct Ugm {
    tokens: Trie,
    user_defined: Trie,
    unknown_score: f32,
    charsmap: Charsmap,
    add_space_prefix: bool,
    remove_extra_whitespaces: bool,
}

/// The best way to reach a position.
#[derive(Clone, Copy)]
struct Step {
    token: Option<u32>,
    from: usize,
    score: f64,
}

impl Ugm {
    pub(super) fn read(meta: &Metadata, vocab: &Vocab) -> Result<Ugm, TokenizerError> {
        let flag = |key| meta.get_bool(key).map(|v| v.unwrap_or(false));
        let mut tokens = Trie::new();
        let mut user_defined = Trie::new();
        let mut lowest = f32::MAX;
        for id in 0..vocab.len() as u32 {
            let attr = vocab.attr(id);
            if attr & NORMAL != 0 {
                lowest = lowest.min(vocab.score(id));
            }
            if attr & (NORMAL | USER_DEFINED | UNUSED) != 0 {
                tokens.insert(vocab.text(id), id);
            }
            if attr & USER_DEFINED != 0 {
                user_defined.insert(vocab.text(id), id);
            }
        }
        Ok(Ugm {
            tokens,
            user_defined,
            unknown_score: lowest - UNKNOWN_PENALTY,
            charsmap: Charsmap::read(meta)?,
            add_space_prefix: flag("tokenizer.ggml.add_space_prefix")?,
            remove_extra_whitespaces: flag("tokenizer.ggml.remove_extra_whitespaces")?,
        })
    }

    /// Appends the tokens of `text`; `unk` stands for runs of characters that no token covers.
    pub(super) fn encode(
        &self,
        vocab: &Vocab,
        unk: Option<u32>,
        text: &str,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let text = self.normalize(text)?;
        if text.is_empty() {
            return Ok(());
        }
        let unreached = Step { token: unk, from: 0, score: -f64::MAX };
        let mut best = vec![unreached; text.len() + 1];
        best[0].score = 0.0;
        let mut at = 0;
        while at < text.len() {
            let char_end = (at + utf8_len(text[at])).min(text.len());
            let base = best[at].score;
            let mut improve = |end: usize, token: Option<u32>, score: f64| {
                let score = base + score;
                if score > best[end].score {
                    best[end] = Step { token, from: at, score };
                }
            };
            let mut char_is_token = false;
            for (id, len) in self.tokens.prefixes(&text[at..]) {
                char_is_token |= at + len == char_end;
                let score = if vocab.attr(id) & USER_DEFINED != 0 { 0.0 } else { f64::from(vocab.score(id)) };
                improve(at + len, Some(id), score);
            }
            if !char_is_token {
                improve(char_end, unk, f64::from(self.unknown_score));
            }
            at = char_end;
        }
        let first = out.len();
        let mut step = best[text.len()];
        let mut after_unknown = false;
        loop {
            let unknown = step.token == unk;
            if !(unknown && after_unknown) {
                out.push(
                    step.token
                        .ok_or_else(|| TokenizerError::NoToken { what: "token for unknown characters".into() })?,
                );
            }
            if step.from == 0 {
                break;
            }
            after_unknown = unknown;
            step = best[step.from];
        }
        out[first..].reverse();
        Ok(())
    }

    /// Replaces what the table of replacements names, then settles white space.
    fn normalize(&self, text: &str) -> Result<Vec<u8>, TokenizerError> {
        const SPACE: &[u8] = "▁".as_bytes();
        let bytes = text.as_bytes();
        let mut out = Vec::with_capacity(bytes.len() * 3);
        let mut prefixed = false;
        let mut in_word = false;
        let mut at = 0;
        while at < bytes.len() {
            let (part, consumed) = self.normalize_prefix(&bytes[at..])?;
            for &byte in part {
                if byte != b' ' {
                    if !in_word {
                        in_word = true;
                        if (self.add_space_prefix && !prefixed) || self.remove_extra_whitespaces {
                            out.extend_from_slice(SPACE);
                            prefixed = true;
                        }
                    }
                    out.push(byte);
                } else {
                    in_word = false;
                    if !self.remove_extra_whitespaces {
                        out.extend_from_slice(SPACE);
                    }
                }
            }
            at += consumed;
        }
        Ok(out)
    }

    /// The normalized form of the start of `text`, and the number of bytes that it covers.
    fn normalize_prefix<'a>(&'a self, text: &'a [u8]) -> Result<(&'a [u8], usize), TokenizerError> {
        // As in the reference, the start of a user-defined token is kept as it is even if the rest
        // of the token does not follow.
        let kept = self.user_defined.depth(text);
        if kept > 0 {
            return Ok((&text[..kept], kept));
        }
        if let Some(found) = self.charsmap.longest(text)? {
            return Ok(found);
        }
        // Behind the start of a user-defined token the text may go on within a character.
        let n = utf8_len(text[0]);
        match text.get(..n).map(std::str::from_utf8) {
            Some(Ok(_)) => Ok((&text[..n], n)),
            _ => Ok(("\u{fffd}".as_bytes(), 1)),
        }
    }
}

/// Length of a UTF-8 sequence by its first byte; 1 for bytes that start none.
fn utf8_len(first: u8) -> usize {
    match first >> 4 {
        0xc | 0xd => 2,
        0xe => 3,
        0xf => 4,
        _ => 1,
    }
}

/// SentencePiece's compiled normalization: an XOR-compressed double array of prefixes and the texts
/// that replace them.
///
/// ```text
/// u32 size | size bytes: u32 units of the array | replacements, each ended by a zero byte
/// unit:  31    30..10  9             8     7..0
///        value base    base * 256    leaf  label
/// ```
#[derive(Default)]
struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl Charsmap {
    fn read(meta: &Metadata) -> Result<Charsmap, TokenizerError> {
        let bytes: Vec<u8> = match meta.get(CHARSMAP) {
            None => return Ok(Charsmap::default()),
            Some(Value::Array(Array::U8(v))) => v.clone(),
            Some(Value::Array(Array::I8(v))) => v.iter().map(|&b| b as u8).collect(),
            Some(other) => {
                let kind = ErrorKind::WrongType { expected: "array of u8 or i8", found: other.type_name() };
                return Err(GgufError::key(CHARSMAP, kind).into());
            }
        };
        let Some((size, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(TokenizerError::Charsmap { what: "it is shorter than its header" });
        };
        let size = u32::from_le_bytes(*size) as usize;
        if size >= rest.len() {
            return Err(TokenizerError::Charsmap { what: "its array is longer than the data" });
        }
        let (array, replacements) = rest.split_at(size);
        Ok(Charsmap {
            units: array.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect(),
            replacements: replacements.to_vec(),
        })
    }

    fn unit(&self, index: u32) -> Result<u32, TokenizerError> {
        self.units
            .get(index as usize)
            .copied()
            .ok_or(TokenizerError::Charsmap { what: "an entry points outside the array" })
    }

    /// The replacement of the longest prefix of `text` in the table, and that prefix's length.
    fn longest(&self, text: &[u8]) -> Result<Option<(&[u8], usize)>, TokenizerError> {
        if self.units.is_empty() {
            return Ok(None);
        }
        let base = |unit: u32| (unit >> 10) << ((unit & 1 << 9) >> 6);
        let mut found = None;
        let mut node = base(self.unit(0)?);
        for (i, &byte) in text.iter().enumerate() {
            if byte == 0 {
                break;
            }
            node ^= u32::from(byte);
            let unit = self.unit(node)?;
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            node ^= base(unit);
            if unit & 1 << 8 != 0 {
                found = Some((self.unit(node)? & !(1 << 31), i + 1));
            }
        }
        let Some((offset, len)) = found else {
            return Ok(None);
        };
        let tail = self
            .replacements
            .get(offset as usize..)
            .filter(|t| !t.is_empty())
            .ok_or(TokenizerError::Charsmap { what: "an entry points outside the replacements" })?;
        let end = tail
            .iter()
            .position(|&b| b == 0)
            .ok_or(TokenizerError::Charsmap { what: "the last replacement has no end" })?;
        Ok(Some((&tail[..end], len)))
    }
}
