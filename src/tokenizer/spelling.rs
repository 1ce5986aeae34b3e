//! The texts of tokens as vocabularies spell them, and the bytes they stand for.

use super::unicode;

/// The bytes of a byte-level BPE token. What is outside the alphabet is marked as the reference marks
/// it: its bytes in hexadecimal, then the whole token.
pub(super) fn spelled_bytes(text: &[u8]) -> Vec<u8> {
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
pub(super) fn unescape_spaces(text: &[u8]) -> Vec<u8> {
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
