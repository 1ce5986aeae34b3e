//! A vocabulary as GGUF has it, and the files that one is read from.

use serde_json::Value as Json;
use trine_formats::gguf::Value;

use super::super::error::ConvertError;

/// Kinds of tokens, `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

/// A vocabulary, all token ids in order.
#[derive(Default)]
pub(super) struct Vocab {
    pub tokens: Vec<Vec<u8>>,
    pub kinds: Vec<Kind>,
    /// Empty for byte-level BPE.
    pub scores: Vec<f32>,
}

impl Vocab {
    pub fn push(&mut self, token: impl Into<Vec<u8>>, kind: Kind) {
        self.tokens.push(token.into());
        self.kinds.push(kind);
    }
}

/// The files that say what the special tokens are.
pub(super) struct TokenizerFiles {
    pub tokenizer: Option<Json>,
    pub config: Json,
}

impl TokenizerFiles {
    /// The id of the added token with this text, as `tokenizer.json` has it, or else `tokenizer_config.json`.
    pub fn added(&self, text: &str) -> Option<u32> {
        let listed = self.tokenizer.as_ref().and_then(|t| t.get("added_tokens")?.as_array());
        let listed = listed.into_iter().flatten().find(|a| content(a) == Some(text));
        let decoder = self.config.get("added_tokens_decoder").and_then(Json::as_object);
        let decoded = || decoder?.iter().find(|(_, entry)| content(entry) == Some(text))?.0.parse().ok();
        listed.and_then(|a| u32::try_from(a.get("id")?.as_u64()?).ok()).or_else(decoded)
    }
}

pub(in crate::convert) type Keys = Vec<(String, Value)>;

pub(super) fn wrong(file: &'static str, what: impl Into<String>) -> ConvertError {
    ConvertError::Tokenizer { file, what: what.into() }
}

/// True of a byte by its number, `<0x0A>`.
pub(super) fn is_byte(token: &str) -> bool {
    let hex = token.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
    hex.is_some_and(|h| h.len() == 2 && h.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// True if the model cuts words into pieces of a list: BERT's.
pub(super) fn cuts_words(tokenizer: &Json) -> bool {
    tokenizer.get("model").and_then(|m| m.get("type")?.as_str()) == Some("WordPiece")
}

/// Names that are control tokens although their file does not mark them as special.
pub(super) fn looks_special(token: &str) -> bool {
    matches!(token, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || (token.starts_with("<|") && token.ends_with("|>"))
        || (token.starts_with("<\u{ff5c}") && token.ends_with("\u{ff5c}>"))
        || (token.starts_with("<unused") && token.ends_with('>'))
}

/// The text of a token in `tokenizer_config.json`: a string, or an object with `content`.
pub(super) fn content(entry: &Json) -> Option<&str> {
    entry.as_str().or_else(|| entry.get("content")?.as_str())
}
