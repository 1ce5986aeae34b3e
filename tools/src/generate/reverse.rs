//! Reverse prompts (`-r`): texts at which a generation ends, as llama-completion looks for them.
//!
//! They are looked for in the text of the last tokens, control tokens and the prompt's own included, and only at its
//! end: behind a reverse prompt there may be two more bytes, because its last token may hold what follows it. What is
//! found stays in the text.

use std::collections::VecDeque;

use trine::Tokenizer;
use trine::tokenizer::TokenizerError;

/// Tokens whose text is looked at.
const TOKENS: usize = 32;
/// Bytes that may follow a reverse prompt.
const BEHIND: usize = 2;

/// Watches the tokens of a text.
#[derive(Default)]
pub struct ReversePrompts {
    texts: Vec<Vec<u8>>,
    /// Reverse prompts of one token, which are found by the token.
    single: Vec<u32>,
    last: VecDeque<u32>,
}

impl ReversePrompts {
    /// Watches for `texts`.
    ///
    /// # Errors
    /// A text that cannot be encoded.
    pub fn new(texts: &[String], tokenizer: &Tokenizer) -> Result<ReversePrompts, TokenizerError> {
        let mut single = Vec::new();
        for text in texts {
            if let [id] = tokenizer.encode(text, false, true)?[..] {
                single.push(id);
            }
        }
        let texts = texts.iter().map(|text| text.clone().into_bytes());
        Ok(ReversePrompts { texts: texts.collect(), single, last: VecDeque::new() })
    }

    /// The next token of the text.
    pub fn read(&mut self, id: u32) {
        if self.last.len() == TOKENS {
            self.last.pop_front();
        }
        self.last.push_back(id);
    }

    /// Forgets the tokens so far.
    pub fn forget(&mut self) {
        self.last.clear();
    }

    /// True if the text ends with one of them.
    pub fn reached(&self, tokenizer: &Tokenizer) -> bool {
        if self.texts.is_empty() {
            return false;
        }
        let pieces = self.last.iter().map(|&id| tokenizer.piece(id, true));
        let text: Vec<u8> = pieces.flatten().collect();
        let last = self.last.back();
        let single = last.is_some_and(|id| self.single.contains(id));
        single || self.texts.iter().any(|wanted| ends_with(&text, wanted))
    }
}

/// True if `wanted` stands in the last bytes of `text`.
fn ends_with(text: &[u8], wanted: &[u8]) -> bool {
    let from = text.len().saturating_sub(wanted.len() + BEHIND);
    let mut windows = text[from..].windows(wanted.len().max(1));
    wanted.is_empty() || windows.any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::ends_with;

    #[test]
    fn two_bytes_may_follow() {
        for (text, found) in [("a User:", true), ("User: \n", true), ("User: ab", false), ("User", false), ("", false)]
        {
            assert_eq!(ends_with(text.as_bytes(), b"User:"), found, "{text:?}");
        }
        assert!(ends_with(b"", b""));
    }
}
