//! From the bytes of tokens to text that may be shown.

use super::stop::StopStrings;
use crate::tokenizer::Characters;

/// Whole characters of a text, up to its first stop string.
pub struct TextStream {
    characters: Characters,
    stops: StopStrings,
}

impl TextStream {
    /// The beginning of a text that ends at any of `stops`.
    pub fn new(stops: Vec<String>) -> TextStream {
        TextStream { characters: Characters::default(), stops: StopStrings::new(stops) }
    }

    /// The text that the bytes of the next token make certain, and the stop string it came to.
    pub fn push(&mut self, bytes: &[u8]) -> (String, Option<usize>) {
        self.stops.push(&self.characters.push(bytes))
    }

    /// Returns the pending text at the end: the beginning of a stop string, an unfinished character as U+FFFD.
    pub fn finish(&mut self) -> (String, Option<usize>) {
        let (mut text, stop) = self.stops.push(&self.characters.finish());
        if stop.is_none() {
            text += &self.stops.finish();
        }
        (text, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::TextStream;

    #[test]
    fn characters_and_stop_strings_across_tokens() {
        // "a€b…" with tokens that end within characters, and a stop string of two of them
        let mut text = TextStream::new(vec!["b…".to_owned()]);
        assert_eq!(text.push(b"a\xe2"), ("a".to_owned(), None));
        assert_eq!(text.push(b"\x82"), (String::new(), None));
        assert_eq!(text.push(b"\xacb"), ("€".to_owned(), None));
        assert_eq!(text.push(b"\xe2\x80"), (String::new(), None));
        assert_eq!(text.push(b"\xa6c"), (String::new(), Some(0)));
    }

    #[test]
    fn an_unfinished_end_is_replaced() {
        let mut text = TextStream::new(vec!["bc".to_owned()]);
        assert_eq!(text.push(b"ab\xe2\x80"), ("a".to_owned(), None));
        assert_eq!(text.finish(), ("b\u{fffd}".to_owned(), None));
    }

    #[test]
    fn a_replaced_end_may_complete_a_stop_string() {
        let mut text = TextStream::new(vec!["b\u{fffd}".to_owned()]);
        assert_eq!(text.push(b"ab\xe2\x80"), ("a".to_owned(), None));
        assert_eq!(text.finish(), (String::new(), Some(0)));
    }
}
