//! RWKV's tokenizer (`tokenizer.ggml.model` = `rwkv`): the longest token from left to right.
//!
//! A GGUF file holds texts and these tokens are bytes, so the file spells them with escapes: `\t`, `\n`, `\r`, `\xHH`,
//! and a backslash before any other character for that character.

use super::error::TokenizerError;
use super::trie::Trie;
use super::vocab::Vocab;

/// All tokens by the bytes they stand for.
pub(super) struct Rwkv {
    tokens: Trie,
}

impl Rwkv {
    pub(super) fn new(vocab: &Vocab) -> Rwkv {
        let mut tokens = Trie::new();
        for id in 0..vocab.len() as u32 {
            tokens.insert(&unescape(vocab.text(id)), id);
        }
        Rwkv { tokens }
    }

    /// Appends the tokens of `text`; `unk` stands for bytes that no token begins with.
    pub(super) fn encode(&self, unk: Option<u32>, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut rest = text.as_bytes();
        while let Some(&byte) = rest.first() {
            let (id, len) = match self.tokens.longest(rest) {
                Some((id, len)) if len > 0 => (id, len),
                _ => (unk.ok_or_else(|| no_token(byte))?, 1),
            };
            out.push(id);
            rest = &rest[len..];
        }
        Ok(())
    }
}

fn no_token(byte: u8) -> TokenizerError {
    TokenizerError::NoToken { what: format!("token for the byte 0x{byte:02X}") }
}

/// The bytes that an escaped token stands for. Digits that are not hexadecimal count as the reference counts them, by
/// their distance from `0` or `a`.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            None => {}
            Some(b't') => out.push(b'\t'),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b'x') => {
                if let (Some(high), Some(low)) = (bytes.next(), bytes.next()) {
                    out.push((digit(high) << 4).wrapping_add(digit(low)));
                }
            }
            Some(other) => out.push(other),
        }
    }
    out
}

fn digit(c: u8) -> u8 {
    // Bytes from 0x80 on are negative characters in the reference.
    if (b'a'..0x80).contains(&c) { c - b'a' + 10 } else { c.wrapping_sub(b'0') }
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn escapes_stand_for_bytes() {
        assert_eq!(unescape(br"a\tb\n\r\\\'\x0a\xffz"), b"a\tb\n\r\\'\x0a\xffz");
        assert_eq!(unescape(br"\x4"), b"");
        assert_eq!(unescape(br"ab\"), b"ab");
    }
}
