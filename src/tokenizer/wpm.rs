//! WordPiece of BERT-like vocabularies (`tokenizer.ggml.model` = `bert`).
//!
//! A text is cut into words at white space, around punctuation and around Chinese characters. Each word is
//! then covered from left to right by the longest tokens; a word that cannot be covered is one unknown token.

use trine_formats::gguf::Metadata;
use unicode_normalization::char::decompose_canonical;

use super::error::TokenizerError;
use super::trie::Trie;
use super::unicode::{Class, is_control};
use super::vocab::Vocab;

/// Prefix of a word's first token in BERT's vocabularies as GGUF has them.
const WORD_START: &str = "▁";

/// All tokens by their texts, and how words are written before they are looked up.
pub(super) struct Wpm {
    tokens: Trie,
    lowercase: bool,
    strip_accents: bool,
}

impl Wpm {
    pub(super) fn read(meta: &Metadata, vocab: &Vocab) -> Result<Wpm, TokenizerError> {
        let mut tokens = Trie::new();
        for id in 0..vocab.len() as u32 {
            tokens.insert(vocab.text(id), id);
        }
        let lowercase = meta.get_bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
        let strip_accents = meta.get_bool("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
        Ok(Wpm { tokens, lowercase, strip_accents })
    }

    /// Appends the tokens of `text`; `unk` stands for words that no tokens cover.
    pub(super) fn encode(&self, unk: Option<u32>, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        for word in self.words(text) {
            let first = out.len();
            if !self.cover(word.as_bytes(), out) {
                out.truncate(first);
                out.push(unk.ok_or_else(|| TokenizerError::NoToken { what: "token for unknown words".into() })?);
            }
        }
        Ok(())
    }

    /// Appends the longest tokens from left to right; false if they do not reach the end of `word`.
    fn cover(&self, word: &[u8], out: &mut Vec<u32>) -> bool {
        let mut rest = word;
        while !rest.is_empty() {
            let Some((id, len)) = self.tokens.longest(rest) else {
                return false;
            };
            out.push(id);
            rest = &rest[len..];
        }
        true
    }

    /// The words of `text`, each behind [`WORD_START`].
    fn words(&self, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut word = String::new();
        let mut finish = |word: &mut String| {
            if !word.is_empty() {
                words.push(std::mem::take(word));
            }
        };
        for c in text.chars() {
            let c = if self.strip_accents { base_of(c) } else { c };
            let class = Class::of(c);
            if class.is_space() {
                finish(&mut word);
                continue;
            }
            let dropped = matches!(c, '\0' | char::REPLACEMENT_CHARACTER) || is_control(c);
            if dropped || (self.strip_accents && class.is_mark()) {
                continue;
            }
            let alone = class.is_punctuation() || (c < '\x7f' && class.is_symbol()) || is_chinese(c);
            if alone {
                finish(&mut word);
            }
            if word.is_empty() {
                word.push_str(WORD_START);
            }
            word.push(if self.lowercase { lower(c) } else { c });
            if alone {
                finish(&mut word);
            }
        }
        finish(&mut word);
        words
    }
}

/// `c` without its accents: the first character of its canonical decomposition. Characters younger than the
/// reference's tables stay as they are.
fn base_of(c: char) -> char {
    let class = Class::of(c);
    if class.is_other() && !class.is_space() {
        return c;
    }
    let mut first = None;
    decompose_canonical(c, |part| {
        first.get_or_insert(part);
    });
    first.unwrap_or(c)
}

/// The one lower-case character of `c`. Characters younger than the reference's tables stay as they are.
fn lower(c: char) -> char {
    if Class::of(c).is_other() {
        return c;
    }
    c.to_lowercase().next().unwrap_or(c)
}

/// True if `c` is a word of its own, as BERT's own tokenizer has the blocks of Chinese characters. Extension E begins
/// 256 characters late there, and vocabularies were made with that.
fn is_chinese(c: char) -> bool {
    matches!(
        c as u32,
        0x4e00..=0x9fff
            | 0x3400..=0x4dbf
            | 0x2_0000..=0x2_a6df
            | 0x2_a700..=0x2_b73f
            | 0x2_b740..=0x2_b81f
            | 0x2_b920..=0x2_ceaf
            | 0xf900..=0xfaff
            | 0x2_f800..=0x2_fa1f
    )
}

#[cfg(test)]
mod tests {
    use super::{base_of, lower};

    /// FNV-1a over the pairs of a map that are not the identity, and their number.
    fn fingerprint(map: fn(char) -> char) -> (usize, u64) {
        let mut count = 0;
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for c in (0..0x11_0000).filter_map(char::from_u32) {
            let to = map(c);
            if to != c {
                count += 1;
                for byte in [c as u32, to as u32].iter().flat_map(|v| v.to_le_bytes()) {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        (count, hash)
    }

    #[test]
    fn lower_case_and_base_characters_are_those_of_the_references_tables() {
        assert_eq!(fingerprint(lower), (1433, 0x7d0c_429f_29de_bbca));
        assert_eq!(fingerprint(base_of), (13233, 0x0fe2_1db1_4230_f5f7));
    }
}
