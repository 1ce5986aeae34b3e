//! PTX text to words and marks.

use super::ParseError;

/// A word (names, opcodes with their modifiers, numbers) or a mark of one character, and the line it stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

impl Token<'_> {
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

/// Takes a text apart; comments are left out.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut all = Vec::new();
    let mut commented = false;
    for (number, line) in text.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            if commented {
                let Some(end) = rest.find("*/") else { break };
                (rest, commented) = (&rest[end + 2..], false);
            } else if rest.starts_with("//") {
                break;
            } else if rest.starts_with("/*") {
                (rest, commented) = (&rest[2..], true);
            } else if first.is_whitespace() {
                rest = &rest[first.len_utf8()..];
            } else {
                let length = token(rest)
                    .ok_or_else(|| ParseError { line: number + 1, what: format!("'{first}' is no part of PTX") })?;
                all.push(Token { text: &rest[..length], line: number + 1 });
                rest = &rest[length..];
            }
        }
    }
    Ok(all)
}

/// Length of the token at the beginning of `text`.
fn token(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if b"{}[]()<>,;:=+-!|@".contains(&bytes[0]) {
        return Some(1);
    }
    if bytes[0] == b'"' {
        return text[1..].find('"').map(|end| end + 2);
    }
    let mut length = 0;
    while let Some(&byte) = bytes.get(length) {
        let word = byte.is_ascii_alphanumeric() || b"_$%.".contains(&byte);
        // Modifiers such as L2::128B have two colons; a label ends with one.
        let colons = bytes[length..].starts_with(b"::");
        if !word && !colons {
            break;
        }
        length += if word { 1 } else { 2 };
    }
    (length > 0).then_some(length)
}
