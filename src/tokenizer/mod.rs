//! Text to tokens and back, from GGUF metadata, as llama.cpp does it.
//!
//! Six algorithms: byte pair encoding over a table of pre-tokenizers, SentencePiece by score, unigram,
//! WordPiece, RWKV's longest tokens and PLaMo 2's highest sum. Special tokens are split off first.

mod bpe;
mod detok;
mod error;
mod merges;
mod parts;
mod plamo2;
mod pre;
mod rwkv;
mod scan;
mod special;
mod spelling;
mod split;
mod spm;
#[cfg(test)]
mod tests;
mod trie;
mod ugm;
mod unicode;
mod unicode_data;
mod vocab;
mod wpm;

use trine_formats::gguf::Metadata;

pub use detok::{Characters, Detokenizer, pending};
pub use error::TokenizerError;
pub use special::FillIn;

use bpe::Bpe;
use plamo2::Plamo2;
use rwkv::Rwkv;
use special::{Defaults, Fragment, Special};
use spelling::{spelled_bytes, unescape_spaces};
use ugm::Ugm;
use vocab::{BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab};
use wpm::Wpm;

const MODEL: &str = "tokenizer.ggml.model";

enum Algorithm {
    Bpe(Box<Bpe>),
    Spm {
        add_space_prefix: bool,
    },
    Ugm(Box<Ugm>),
    Wpm(Box<Wpm>),
    Rwkv(Box<Rwkv>),
    Plamo2(Box<Plamo2>),
    /// The synthetic vocabularies of llama.cpp's tests: a hash of every five bytes is a token, whose piece is its id.
    Hashes,
    /// None that is known, and why: texts cannot be encoded.
    Unknown(String),
}

/// The tokenizer of a model. Immutable, so threads can share it.
pub struct Tokenizer {
    vocab: Vocab,
    special: Special,
    algorithm: Algorithm,
    add_bos: bool,
    add_eos: bool,
    /// True if a separator stands between two texts that are compared.
    add_sep: bool,
}

impl Tokenizer {
    /// Builds the tokenizer that the `tokenizer.ggml.*` keys describe.
    ///
    /// # Errors
    /// A missing key, a value of the wrong type or length, an unusable entry, an unknown tokenizer
    /// model or pre-tokenizer; each names the key.
    pub fn from_metadata(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let model = meta.get_str(MODEL)?.ok_or(TokenizerError::Missing { key: MODEL })?;
        let pre = match model {
            "gpt2" => Some(meta.get_str("tokenizer.ggml.pre")?),
            "gemma4" => Some(Some("gemma4")),
            _ => None,
        };
        let pre_settings = pre.map(pre::find).transpose()?;
        let (defaults, mut add_bos, mut add_eos) = match pre_settings {
            Some(settings) if model == "gpt2" => {
                let ids =
                    Defaults { bos: Some(11).filter(|_| settings.default_bos), eos: Some(11), ..Defaults::default() };
                (ids, settings.add_bos, false)
            }
            _ => defaults_of(model)?,
        };
        add_bos = meta.get_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(add_bos);
        add_eos = meta.get_bool("tokenizer.ggml.add_eos_token")?.unwrap_or(add_eos);
        let separates = model == "bert" || pre.flatten().is_some_and(|name| pre::SEPARATING.contains(&name));
        let add_sep = meta.get_bool("tokenizer.ggml.add_sep_token")?.unwrap_or(separates);
        let mut vocab = Vocab::read(meta)?;
        let algorithm = match pre_settings {
            Some(settings) => {
                add_bos |= settings.force_bos;
                let merges_optional = pre.flatten() == Some("kimi-k2");
                let bpe = Bpe::read(meta, &vocab, settings, merges_optional)?;
                Algorithm::Bpe(Box::new(bpe))
            }
            None => match model {
                "t5" => Algorithm::Ugm(Box::new(Ugm::read(meta, &vocab)?)),
                "bert" => Algorithm::Wpm(Box::new(Wpm::read(meta, &vocab)?)),
                "rwkv" => Algorithm::Rwkv(Box::new(Rwkv::new(&vocab))),
                "plamo2" => Algorithm::Plamo2(Box::new(Plamo2::new(&vocab))),
                "test" => Algorithm::Hashes,
                _ => Algorithm::Spm {
                    add_space_prefix: meta.get_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
                },
            },
        };
        let special = Special::read(meta, &mut vocab, defaults)?;
        Ok(Tokenizer { vocab, special, algorithm, add_bos, add_eos, add_sep })
    }

    /// A stand-in for the tokenizer of a model that has none that is known: `n_vocab` tokens without a text, and only
    /// the special tokens that the keys of `meta` name. [`encode`](Self::encode) then fails with `why`.
    ///
    /// # Errors
    /// A special token outside the vocabulary, a value of the wrong type.
    pub fn for_ids_only(meta: &Metadata, n_vocab: usize, why: &TokenizerError) -> Result<Tokenizer, TokenizerError> {
        let mut vocab = Vocab::without_texts(n_vocab);
        let special = Special::read(meta, &mut vocab, Defaults::default())?;
        let algorithm = Algorithm::Unknown(why.to_string());
        Ok(Tokenizer { vocab, special, algorithm, add_bos: false, add_eos: false, add_sep: false })
    }

    /// Fails if texts cannot be encoded at all.
    ///
    /// # Errors
    /// [`TokenizerError::IdsOnly`] where this is a [stand-in](Self::for_ids_only).
    pub fn check(&self) -> Result<(), TokenizerError> {
        match &self.algorithm {
            Algorithm::Unknown(why) => Err(TokenizerError::IdsOnly { why: why.clone() }),
            _ => Ok(()),
        }
    }

    /// The tokens of `text`, as `llama_tokenize` gives them.
    ///
    /// `add_special` puts BOS before and EOS behind if the model wants them (BERT's WordPiece: always
    /// BOS and the separator; RWKV, PLaMo 2 and `test`: never any); with `parse_special` the texts of control
    /// tokens become these tokens, without it they are text. User-defined tokens are always found.
    ///
    /// # Errors
    /// The vocabulary lacks a token that is needed: BOS, EOS, one for a byte, one for the unknown.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        self.check()?;
        let mut out = Vec::new();
        let ids = &self.special;
        let (before, behind) = match self.algorithm {
            _ if !add_special => (None, None),
            Algorithm::Rwkv(_) | Algorithm::Plamo2(_) | Algorithm::Hashes => (None, None),
            Algorithm::Wpm(_) => (Some((ids.bos, "BOS")), Some((ids.sep, "separator"))),
            _ => (self.add_bos.then_some((ids.bos, "BOS")), self.add_eos.then_some((ids.eos, "EOS"))),
        };
        if let Some((id, what)) = before {
            out.push(required(id, what)?);
        }
        let mut after_special = true;
        for fragment in self.special.partition(&self.vocab, text, parse_special) {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(part) => self.encode_fragment(part, after_special, &mut out)?,
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if let Some((id, what)) = behind {
            out.push(required(id, what)?);
        }
        Ok(out)
    }

    fn encode_fragment(&self, text: &str, after_special: bool, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        match &self.algorithm {
            Algorithm::Bpe(bpe) if bpe.escapes_spaces() => bpe.encode(&self.vocab, &text.replace(' ', "▁"), out),
            Algorithm::Bpe(bpe) => bpe.encode(&self.vocab, text, out),
            Algorithm::Spm { add_space_prefix } => {
                let prefix = if *add_space_prefix && after_special { " " } else { "" };
                let text = format!("{prefix}{text}").replace(' ', "▁");
                spm::encode(&self.vocab, &text, out)
            }
            Algorithm::Ugm(ugm) => ugm.encode(&self.vocab, self.special.unk, text, out),
            Algorithm::Wpm(wpm) => wpm.encode(self.special.unk, text, out),
            Algorithm::Rwkv(rwkv) => rwkv.encode(self.special.unk, text, out),
            Algorithm::Plamo2(plamo2) => plamo2.encode(text, out),
            Algorithm::Hashes => {
                out.extend(text.as_bytes().chunks(5).map(|five| self.hashed(five)));
                Ok(())
            }
            Algorithm::Unknown(_) => self.check(),
        }
    }

    fn hashed(&self, bytes: &[u8]) -> u32 {
        let add = |hash: u64, &byte: &u8| hash * 31 + u64::from(byte);
        // No model has an empty vocabulary.
        (bytes.iter().fold(0, add) % self.vocab.len().max(1) as u64) as u32
    }

    /// The bytes that `id` stands for, as `llama_token_to_piece` gives them: possibly part of a
    /// character; empty for tokens without a text and, unless `special`, for control tokens.
    pub fn piece(&self, id: u32, special: bool) -> Vec<u8> {
        let attr = self.vocab.attr(id);
        let text = self.vocab.text(id);
        if attr & (UNKNOWN | CONTROL) != 0 && !special {
            return Vec::new();
        }
        match &self.algorithm {
            Algorithm::Rwkv(_) => return rwkv::unescape(text),
            Algorithm::Hashes if (id as usize) < self.vocab.len() => {
                return format!("{id:x}").into_bytes();
            }
            Algorithm::Plamo2(_) if attr & BYTE == 0 => return text.to_vec(),
            _ => {}
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

    /// Control tokens: those that have a text only where special ones are shown.
    pub fn controls(&self) -> impl Iterator<Item = u32> {
        let ids = 0..self.n_vocab() as u32;
        ids.filter(|&id| self.piece(id, false).is_empty() && !self.piece(id, true).is_empty())
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// True if `id` ends a generation: end of text, of turn, of message, and the like.
    pub fn is_eog(&self, id: u32) -> bool {
        self.special.is_eog(id)
    }

    /// The tokens of texts with a gap that the model fills; `None`: it does not.
    pub fn fill_in(&self) -> Option<FillIn> {
        self.special.fill_in()
    }

    /// BOS, where the model wants one in front of a text.
    pub fn text_bos(&self) -> Option<u32> {
        self.special.bos.filter(|_| self.add_bos)
    }

    /// True if the model expects BOS in front of a text; [`encode`](Self::encode) with `add_special` adds it, but for
    /// the kinds named there.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// True if the model expects EOS behind a text, with the same exceptions.
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

/// The ids that a kind of tokenizer has unless the file names others, and whether it wants BOS and EOS
/// around a text.
fn defaults_of(model: &str) -> Result<(Defaults, bool, bool), TokenizerError> {
    let ids = |bos, eos, unk, sep| Defaults { bos, eos, unk, sep };
    Ok(match model {
        "gemma4" | "rwkv" | "test" => (Defaults::default(), false, false),
        "llama" => (ids(Some(1), Some(2), Some(0), None), true, false),
        "t5" => (ids(None, Some(1), Some(2), None), false, true),
        "bert" => (ids(Some(101), None, Some(100), Some(102)), true, false),
        "plamo2" => (ids(Some(1), Some(2), Some(0), None), false, false),
        _ => {
            return Err(TokenizerError::UnknownModel { model: model.to_owned() });
        }
    })
}

fn required(id: Option<u32>, what: &str) -> Result<u32, TokenizerError> {
    id.ok_or_else(|| TokenizerError::NoToken { what: format!("{what} token") })
}
