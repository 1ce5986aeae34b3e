//! Byte pair encoding (`tokenizer.ggml.model` = `gpt2`), on the model of the `tokenizers` crate.
//!
//! Splitting is ours: the crate's pre-tokenizer runs an engine that stops without an error when it
//! backtracks too much, and the reference's splitting is not that of its regular expressions.

use std::collections::HashSet;

use trine_formats::gguf::Metadata;

use super::error::TokenizerError;
use super::merges::Merges;
use super::pre::Pre;
use super::split::PreTokenizer;
use super::unicode::byte_alphabet;
use super::vocab::{Vocab, entry};

const MERGES: &str = "tokenizer.ggml.merges";

/// Splitter and merges.
pub(super) struct Bpe {
    pre: Pre,
    splitter: PreTokenizer,
    merges: Merges,
}

impl Bpe {
    /// `merges_optional`: the vocabulary may come without merges.
    ///
    /// # Errors
    /// Merges that are missing, not two pieces, or of pieces that are no tokens.
    pub(super) fn read(meta: &Metadata, vocab: &Vocab, pre: Pre, merges_optional: bool) -> Result<Bpe, TokenizerError> {
        let mut pairs = Vec::new();
        let mut seen = HashSet::new();
        match meta.get_strs(MERGES)? {
            None if merges_optional => {}
            None => return Err(TokenizerError::Missing { key: MERGES }),
            Some(merges) => {
                for (index, merge) in merges.iter().enumerate() {
                    // A repeated merge keeps its first rank.
                    let (left, right) = parse_merge(vocab, index, merge)?;
                    if seen.insert((left, right)) {
                        pairs.push((left.to_owned(), right.to_owned()));
                    }
                }
            }
        }
        let tokens =
            (0..vocab.len() as u32).filter_map(|id| Some((std::str::from_utf8(vocab.text(id)).ok()?.to_owned(), id)));
        Ok(Bpe { pre, splitter: PreTokenizer::new(pre.steps)?, merges: Merges::new(tokens, pairs)? })
    }

    /// True if spaces are U+2581 in the tokens.
    pub(super) fn escapes_spaces(&self) -> bool {
        self.pre.escape_spaces
    }

    /// Appends the tokens of `text`.
    pub(super) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let alphabet = byte_alphabet();
        let mut spelled = String::new();
        for word in self.splitter.split(text) {
            let word = if self.pre.byte_level {
                spelled.clear();
                spelled.extend(word.bytes().map(|b| alphabet[usize::from(b)]));
                spelled.as_str()
            } else {
                word
            };
            self.encode_word(vocab, word, out)?;
        }
        Ok(())
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let line_feeds = || self.pre.whole_line_feeds && word.bytes().all(|b| b == b'\n');
        if (self.pre.ignore_merges || line_feeds())
            && let Some(id) = vocab.id(word.as_bytes())
        {
            out.push(id);
            return Ok(());
        }
        // The model drops characters that are no tokens and would merge across them, so it gets the
        // runs between them.
        let mut run = 0;
        let mut buf = [0; 4];
        for (at, c) in word.char_indices() {
            let bytes = c.encode_utf8(&mut buf).as_bytes();
            if vocab.id(bytes).is_some() {
                continue;
            }
            self.merges.encode(&word[run..at], out)?;
            run = at + bytes.len();
            if !self.pre.byte_level {
                out.extend(bytes.iter().filter_map(|&b| vocab.hex_token(b)));
            }
        }
        self.merges.encode(&word[run..], out)
    }
}

/// The two pieces of a merge, which are separated by the first space that is not the first byte.
fn parse_merge<'a>(vocab: &Vocab, index: usize, merge: &'a [u8]) -> Result<(&'a str, &'a str), TokenizerError> {
    let bad = |what: String| entry(MERGES, index, what);
    let shown = || merge.escape_ascii().to_string();
    let text = std::str::from_utf8(merge).map_err(|_| bad(format!("'{}' is not UTF-8", shown())))?;
    let (left, right) = text
        .bytes()
        .skip(1)
        .position(|b| b == b' ')
        .map(|i| (&text[..i + 1], &text[i + 2..]))
        .ok_or_else(|| bad(format!("'{}' is not two pieces separated by a space", shown())))?;
    let joined = format!("{left}{right}");
    for piece in [left, right, &joined] {
        if vocab.id(piece.as_bytes()).is_none() {
            let piece = piece.escape_default();
            return Err(bad(format!("'{piece}' is not a token of the vocabulary")));
        }
    }
    Ok((left, right))
}
