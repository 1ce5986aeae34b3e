//! The token table: texts, scores and attributes.

use std::collections::HashMap;

use trine_formats::gguf::{Array, ErrorKind, GgufError, Metadata, StrArray, Value};

use super::error::TokenizerError;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";

/// Attributes of a token, as bits.
pub(super) type Attr = u16;
pub(super) const UNKNOWN: Attr = 1;
pub(super) const UNUSED: Attr = 2;
pub(super) const NORMAL: Attr = 4;
pub(super) const CONTROL: Attr = 8;
pub(super) const USER_DEFINED: Attr = 16;
pub(super) const BYTE: Attr = 32;
pub(super) const LSTRIP: Attr = 64;
pub(super) const RSTRIP: Attr = 128;

/// All tokens; ids are positions.
pub(super) struct Vocab {
    texts: StrArray,
    ids: HashMap<Box<[u8]>, u32>,
    scores: Vec<f32>,
    attrs: Vec<Attr>,
}

impl Vocab {
    /// Reads texts, scores (0 where the file has none) and types (normal where it has none).
    pub(super) fn read(meta: &Metadata) -> Result<Vocab, TokenizerError> {
        let tokens = meta.get_strs(TOKENS)?.ok_or(TokenizerError::Missing { key: TOKENS })?;
        let n = tokens.len();
        let mut texts = StrArray::with_capacity(n, tokens.total_bytes());
        let mut ids: HashMap<Box<[u8]>, u32> = HashMap::with_capacity(n);
        for (index, token) in tokens.iter().enumerate() {
            let placeholder = format!("[EMPTY_{index}]");
            let text = if token.is_empty() { placeholder.as_bytes() } else { token };
            if let Some(first) = ids.insert(text.into(), index as u32) {
                return Err(entry(
                    TOKENS,
                    index,
                    format!("'{}' is already token {first}; ids would be ambiguous", text.escape_ascii()),
                ));
            }
            if !texts.push(text) {
                return Err(entry(TOKENS, index, "more than 4 GiB of token texts".into()));
            }
        }
        let scores = read_scores(meta, n)?;
        let attrs = match meta.get_i32s(TYPES)? {
            None => vec![NORMAL; n],
            Some(types) => {
                check_length(TYPES, types.len(), n)?;
                types[..n].iter().map(|&t| attr_of_type(t)).collect()
            }
        };
        let vocab = Vocab { texts, ids, scores, attrs };
        for id in 0..n as u32 {
            if vocab.attr(id) & BYTE != 0 && vocab.byte_value(id).is_none() {
                let text = vocab.text(id).escape_ascii();
                let what = format!("byte token '{text}' is not of the form <0x00> to <0xFF>");
                return Err(entry(TOKENS, id as usize, what));
            }
        }
        Ok(vocab)
    }

    /// `n` tokens that are nothing but ids.
    pub(super) fn without_texts(n: usize) -> Vocab {
        Vocab { texts: StrArray::with_capacity(0, 0), ids: HashMap::new(), scores: Vec::new(), attrs: vec![0; n] }
    }

    pub(super) fn len(&self) -> usize {
        self.attrs.len()
    }

    /// The text of `id`; empty outside the vocabulary.
    pub(super) fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize).unwrap_or_default()
    }

    pub(super) fn id(&self, text: &[u8]) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn score(&self, id: u32) -> f32 {
        self.scores[id as usize]
    }

    /// The attributes of `id`; none outside the vocabulary.
    pub(super) fn attr(&self, id: u32) -> Attr {
        self.attrs.get(id as usize).copied().unwrap_or(0)
    }

    pub(super) fn attr_mut(&mut self, id: u32) -> &mut Attr {
        &mut self.attrs[id as usize]
    }

    /// The byte that a token of the form `<0xHH>` stands for. llama.cpp's converter writes XVERSE's token of byte 0 in
    /// Python's spelling, which llama.cpp reads as that byte.
    pub(super) fn byte_value(&self, id: u32) -> Option<u8> {
        if self.text(id) == br"<b'\x00'>" {
            return Some(0);
        }
        let hex = self.text(id).strip_prefix(b"<0x")?.strip_suffix(b">")?;
        if hex.len() != 2 || !hex.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
    }

    /// The token `<0xHH>` of `byte`.
    pub(super) fn hex_token(&self, byte: u8) -> Option<u32> {
        self.id(format!("<0x{byte:02X}>").as_bytes())
    }

    /// The token for a byte that no other token covers: `<0xHH>`, or the byte as a text.
    pub(super) fn fallback(&self, byte: u8) -> Result<u32, TokenizerError> {
        self.hex_token(byte)
            .or_else(|| self.id(&[byte]))
            .ok_or_else(|| TokenizerError::NoToken { what: format!("token for the byte 0x{byte:02X}") })
    }
}

pub(super) fn entry(key: &'static str, index: usize, what: String) -> TokenizerError {
    TokenizerError::Entry { key, index, what }
}

fn check_length(key: &'static str, found: usize, expected: usize) -> Result<(), TokenizerError> {
    if found < expected {
        return Err(TokenizerError::Length { key, found, expected });
    }
    Ok(())
}

/// Scores, which are `f32` or `i32`; entries beyond the vocabulary are ignored.
fn read_scores(meta: &Metadata, n: usize) -> Result<Vec<f32>, TokenizerError> {
    let scores: Vec<f32> = match meta.get(SCORES) {
        None => return Ok(vec![0.0; n]),
        Some(Value::Array(Array::F32(v))) => v.clone(),
        Some(Value::Array(Array::I32(v))) => v.iter().map(|&x| x as f32).collect(),
        Some(other) => {
            let kind = ErrorKind::WrongType { expected: "array of f32 or i32", found: other.type_name() };
            return Err(GgufError::key(SCORES, kind).into());
        }
    };
    check_length(SCORES, scores.len(), n)?;
    if let Some(index) = scores.iter().take(n).position(|s| s.is_nan()) {
        return Err(entry(SCORES, index, "the score is not a number".into()));
    }
    Ok(scores)
}

/// GGUF's token types; types that it does not define have no attribute.
fn attr_of_type(ty: i32) -> Attr {
    match ty {
        1 => NORMAL,
        2 => UNKNOWN,
        3 => CONTROL,
        4 => USER_DEFINED,
        5 => UNUSED,
        6 => BYTE,
        _ => 0,
    }
}
