//! Tokens to text, piece by piece.

use super::Tokenizer;

/// Turns a stream of bytes into text and never emits part of a character.
///
/// Bytes that no continuation can turn into a character come out as U+FFFD, one for each maximal
/// invalid sequence.
#[derive(Clone, Debug, Default)]
pub struct Characters {
    pending: Vec<u8>,
}

impl Characters {
    /// The characters that `bytes` complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let (text, rest) = whole_chars(&self.pending);
        let done = self.pending.len() - rest;
        self.pending.drain(..done);
        text
    }

    /// U+FFFD if the bytes ended within a character. The next [`push`](Self::push) starts afresh.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Turns a stream of tokens into text: the bytes of each through [`Characters`].
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    special: bool,
    characters: Characters,
}

impl Tokenizer {
    /// A stream of whole characters from tokens; `special` as in [`piece`](Self::piece).
    pub fn detokenizer(&self, special: bool) -> Detokenizer<'_> {
        Detokenizer::new(self, special)
    }
}

impl<'a> Detokenizer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, special: bool) -> Self {
        Detokenizer { tokenizer, special, characters: Characters::default() }
    }

    /// The characters that `id` completes.
    pub fn push(&mut self, id: u32) -> String {
        self.characters.push(&self.tokenizer.piece(id, self.special))
    }

    /// U+FFFD if the tokens ended within a character. The next [`push`](Self::push) starts afresh.
    pub fn finish(&mut self) -> String {
        self.characters.finish()
    }
}

/// The place in `text` from which one of `marks` may be beginning, which only more text can tell; its end where none may.
pub fn pending(text: &str, marks: &[impl AsRef<str>]) -> usize {
    let may = |at: &usize| marks.iter().any(|mark| mark.as_ref().starts_with(&text[*at..]));
    text.char_indices().map(|(at, _)| at).find(may).unwrap_or(text.len())
}

/// The text of `bytes` and how many bytes at the end may still become a character.
fn whole_chars(mut bytes: &[u8]) -> (String, usize) {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, 0);
            }
            Err(e) => {
                let (valid, rest) = bytes.split_at(e.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                match e.error_len() {
                    None => return (text, rest.len()),
                    Some(n) => {
                        text.push(char::REPLACEMENT_CHARACTER);
                        bytes = &rest[n..];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::whole_chars;

    #[test]
    fn a_started_character_waits_and_a_broken_one_is_replaced() {
        assert_eq!(whole_chars(b"a\xe2\x82"), ("a".into(), 2));
        assert_eq!(whole_chars(b"a\xe2\x82\xacb"), ("a€b".into(), 0));
        assert_eq!(whole_chars(b"\xe2\x82x\xff\xf0"), ("\u{fffd}x\u{fffd}".into(), 1));
        assert_eq!(whole_chars(b"\x80"), ("\u{fffd}".into(), 0));
    }
}
