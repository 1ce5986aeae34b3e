//! Text that comes from files, as it is shown to people.
//!
//! A name in a file can hold anything: bytes that move the cursor, rename the window, turn the direction of writing, or
//! begin a line that looks like a message of the program. What has no shape of its own is shown as an escape.

use serde_json::Value;

/// Longest message in bytes.
const MAX_MESSAGE: usize = 4096;
/// Longest name in bytes.
const MAX_NAME: usize = 256;

/// True if a character does something to the text around it instead of standing in it.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// `text` in one line, with escapes such as `\n` and `\u{1b}`.
pub fn escape(text: &str) -> String {
    escape_but(text, |_| false)
}

/// The same, but line breaks and tabs stay: a text of several lines.
pub fn escape_text(text: &str) -> String {
    escape_but(text, |c| matches!(c, '\n' | '\t'))
}

fn escape_but(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && !stays(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// A name, of a tensor or a file, in a line with other things.
pub fn name(name: &str) -> String {
    shorten(escape(name), MAX_NAME)
}

/// A message of one line. Line breaks within, which other libraries make, become spaces.
pub fn message(text: &str) -> String {
    let lines = text.split(['\n', '\r', '\t']);
    let words: Vec<&str> = lines.filter(|s| !s.is_empty()).collect();
    shorten(escape(&words.join(" ")), MAX_MESSAGE)
}

/// Leaves out the middle of what is too long: the end says what to do.
fn shorten(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let head = (0..=max / 4 * 3).rfind(|&i| text.is_char_boundary(i));
    let tail = (text.len() - max / 5..).find(|&i| text.is_char_boundary(i));
    let (head, tail) = (head.unwrap_or(0), tail.unwrap_or(text.len()));
    format!("{} ... {}", &text[..head], &text[tail..])
}

/// A JSON document in which such characters are escaped too; indented when `pretty`.
pub fn json(value: &Value, pretty: bool) -> String {
    let text = if pretty { format!("{value:#}") } else { value.to_string() };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Beside the line breaks of the indentation, all of them stand within texts.
        if is_hidden(c) && c != '\n' {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out += &format!("\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_but_what_can_be_seen() {
        assert_eq!(escape("a\u{1b}]0;x\u{7}\n\u{9b}2J\u{202e}é"), "a\\u{1b}]0;x\\u{7}\\n\\u{9b}2J\\u{202e}é");
        assert_eq!(escape_text("a\n\tb\r"), "a\n\tb\\r");
        assert_eq!(message("a\n\tb\u{1b}[31mc"), "a b\\u{1b}[31mc");
        let value = serde_json::json!({"k\u{9b}": "\u{1b}\u{202e}\u{e0041}\n"});
        let text = json(&value, true);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(text.chars().all(|c| c == '\n' || !is_hidden(c)), "{text}");
    }

    #[test]
    fn messages_are_short() {
        let long = format!("begin {}é end", "ü".repeat(100_000));
        let shown = message(&long);
        assert!(shown.len() <= MAX_MESSAGE && shown.starts_with("begin") && shown.ends_with("end"));
        assert!(name(&long).len() <= MAX_NAME);
    }
}
