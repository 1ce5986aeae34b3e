//! Text to tokens and back, from GGUF metadata, as llama.cpp does it.
//!
//! Three algorithms: byte pair encoding over a table of pre-tokenizers, SentencePiece by score and
//! unigram. Special tokens are split off first.

mod bpe;
mod detok;
mod error;
mod pre;
mod scan;
mod special;
mod split;
mod spm;
#[cfg(test)]
mod tests;
mod trie;
mod ugm;
mod unicode;
mod unicode_data;
mod vocab;

use trine_formats::gguf::Metadata;

pub use detok::{Characters, Detokenizer};
pub use error::TokenizerError;

use bpe::Bpe;
use special::{Defaults, Fragment, Special};
use ugm::Ugm;
use vocab::{BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab};

const MODEL: &str = "tokenizer.ggml.model";

enum Algorithm {
    Bpe(Box<Bpe>),
    Spm { add_space_prefix: bool },
    Ugm(Box<Ugm>),
}

/// The tokenizer of a model. Immutable, so threads can share it.
pub struct Tokenizer {
    vocab: Vocab,
    special: Special,
    algorithm: Algorithm,
    add_bos: bool,
    add_eos: bool,
}

impl Tokenizer {
    /// Builds the tokenizer that the `tokenizer.ggml.*` keys describe.
    ///
    /// # Errors
    /// A missing key, a value of the wrong type or length, an unusable entry, an unknown tokenizer
    /// model or pre-tokenizer; each names the key.
    pub fn from_metadata(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let model = meta
            .get_str(MODEL)?
            .ok_or(TokenizerError::Missing { key: MODEL })?;
        let pre = match model {
            "gpt2" => Some(meta.get_str("tokenizer.ggml.pre")?),
            "gemma4" => Some(Some("gemma4")),
            _ => None,
        };
        let pre_settings = pre.map(pre::find).transpose()?;
        let (defaults, mut add_bos, mut add_eos) = match (model, pre_settings) {
            ("gpt2", Some(pre)) => {
                let ids = Defaults {
                    bos: Some(11).filter(|_| pre.default_bos),
                    eos: Some(11),
                    unk: None,
                };
                (ids, pre.add_bos, false)
            }
            ("gemma4", _) => (Defaults::default(), false, false),
            ("llama", _) => {
                let ids = Defaults {
                    bos: Some(1),
                    eos: Some(2),
                    unk: Some(0),
                };
                (ids, true, false)
            }
            ("t5", _) => {
                let ids = Defaults {
                    bos: None,
                    eos: Some(1),
                    unk: Some(2),
                };
                (ids, false, true)
            }
            _ => {
                return Err(TokenizerError::UnknownModel {
                    model: model.to_owned(),
                });
            }
        };
        add_bos = meta
            .get_bool("tokenizer.ggml.add_bos_token")?
            .unwrap_or(add_bos);
        add_eos = meta
            .get_bool("tokenizer.ggml.add_eos_token")?
            .unwrap_or(add_eos);
        let mut vocab = Vocab::read(meta)?;
        let algorithm = match pre_settings {
            Some(settings) => {
                add_bos |= settings.force_bos;
                let merges_optional = pre.flatten() == Some("kimi-k2");
                let bpe = Bpe::read(meta, &vocab, settings, merges_optional)?;
                Algorithm::Bpe(Box::new(bpe))
            }
            None if model == "t5" => Algorithm::Ugm(Box::new(Ugm::read(meta, &vocab)?)),
            None => Algorithm::Spm {
                add_space_prefix: meta
                    .get_bool("tokenizer.ggml.add_space_prefix")?
                    .unwrap_or(true),
            },
        };
        let special = Special::read(meta, &mut vocab, defaults)?;
        Ok(Tokenizer {
            vocab,
            special,
            algorithm,
            add_bos,
            add_eos,
        })
    }

    /// The tokens of `text`, as `llama_tokenize` gives them.
    ///
    /// `add_special` puts BOS before and EOS behind if the model wants them; with `parse_special` the
    /// texts of control tokens become these tokens, without it they are text. User-defined tokens are
    /// always found.
    ///
    /// # Errors
    /// The vocabulary lacks a token that is needed: BOS, EOS, one for a byte, one for the unknown.
    pub fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut out = Vec::new();
        if add_special && self.add_bos {
            out.push(required(self.special.bos, "BOS")?);
        }
        let mut after_special = true;
        for fragment in self.special.partition(&self.vocab, text, parse_special) {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(part) => self.encode_fragment(part, after_special, &mut out)?,
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if add_special && self.add_eos {
            out.push(required(self.special.eos, "EOS")?);
        }
        Ok(out)
    }

    fn encode_fragment(
        &self,
        text: &str,
        after_special: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        match &self.algorithm {
            Algorithm::Bpe(bpe) if bpe.escapes_spaces() => {
                bpe.encode(&self.vocab, &text.replace(' ', "▁"), out)
            }
            Algorithm::Bpe(bpe) => bpe.encode(&self.vocab, text, out),
            Algorithm::Spm { add_space_prefix } => {
                let prefix = if *add_space_prefix && after_special {
                    " "
                } else {
                    ""
                };
                let text = format!("{prefix}{text}").replace(' ', "▁");
                spm::encode(&self.vocab, &text, out)
            }
            Algorithm::Ugm(ugm) => ugm.encode(&self.vocab, self.special.unk, text, out),
        }
    }

    /// The bytes that `id` stands for, as `llama_token_to_piece` gives them: possibly part of a
    /// character; empty for tokens without a text and, unless `special`, for control tokens.
    pub fn piece(&self, id: u32, special: bool) -> Vec<u8> {
        let attr = self.vocab.attr(id);
        let text = self.vocab.text(id);
        if attr & (UNKNOWN | CONTROL) != 0 && !special {
            return Vec::new();
        }
        if attr & (UNKNOWN | CONTROL | USER_DEFINED) != 0 {
            return text.to_vec();
        }
        if attr & NORMAL != 0 {
            return match &self.algorithm {
                Algorithm::Bpe(bpe) if !bpe.escapes_spaces() => spelled_bytes(text),
                _ => unescape_spaces(text),
            };
        }
        if attr & BYTE != 0 {
            return self.vocab.byte_value(id).into_iter().collect();
        }
        Vec::new()
    }

    /// A stream of whole characters from tokens; `special` as in [`piece`](Self::piece).
    pub fn detokenizer(&self, special: bool) -> Detokenizer<'_> {
        Detokenizer::new(self, special)
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// Whether `id` ends a generation: end of text, of turn, of message, and their like.
    pub fn is_eog(&self, id: u32) -> bool {
        self.special.is_eog(id)
    }

    /// BOS, where [`encode`](Self::encode) with `add_special` puts one in front of a text.
    pub fn text_bos(&self) -> Option<u32> {
        self.special.bos.filter(|_| self.add_bos)
    }

    /// Whether [`encode`](Self::encode) with `add_special` begins with BOS.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether [`encode`](Self::encode) with `add_special` ends with EOS.
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// Number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// The text of `id` as the file spells it; empty outside the vocabulary.
    pub fn token_text(&self, id: u32) -> &[u8] {
        self.vocab.text(id)
    }

    /// The token that is spelled `text` in the file.
    pub fn token_id(&self, text: &[u8]) -> Option<u32> {
        self.vocab.id(text)
    }
}

fn required(id: Option<u32>, what: &str) -> Result<u32, TokenizerError> {
    id.ok_or_else(|| TokenizerError::NoToken {
        what: format!("{what} token"),
    })
}

/// The bytes of a byte-level BPE token. What is outside the alphabet is marked as the reference marks
/// it: its bytes in hexadecimal, then the whole token.
fn spelled_bytes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        let broken = chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER);
        for c in chunk.valid().chars().chain(broken) {
            match unicode::char_to_byte(c) {
                Some(byte) => out.push(byte),
                None => {
                    out.extend_from_slice(b"[UNK_BYTE_0x");
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        out.extend_from_slice(format!("{byte:02x}").as_bytes());
                    }
                    out.extend_from_slice(text);
                    out.push(b']');
                }
            }
        }
    }
    out
}

/// `text` with every U+2581 a space.
fn unescape_spaces(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix("▁".as_bytes()) {
            out.push(b' ');
            rest = after;
        } else {
            out.push(byte);
            rest = after;
        }
    }
    out
}
