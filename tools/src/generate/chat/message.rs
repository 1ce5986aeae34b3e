//! Messages of several lines: where they end, and what they say.

/// Most bytes of a message, and what is said about a longer one.
pub const MOST: usize = 16 << 20;
pub const TOO_LONG: &str = "a message of more than 16 MiB: give long texts with -f FILE";

/// An input of the user.
#[derive(Debug, PartialEq)]
pub enum Typed {
    /// A message or a command.
    Message(String),
    /// The end of the input.
    End,
    /// Ctrl-C twice.
    Interrupted,
}

/// First and last mark of a message of several lines.
const BLOCK: &str = "\"\"\"";

/// True if more lines belong to the input: a block that is not closed, or a backslash at the end.
pub fn is_open(typed: &str) -> bool {
    match typed.trim_start().strip_prefix(BLOCK) {
        Some(inside) => !inside.trim_end().ends_with(BLOCK),
        None => typed.ends_with('\\'),
    }
}

/// The message that was typed: what a block has inside, or the lines without the backslashes that joined them.
pub fn typed(typed: &str) -> String {
    let block = typed.trim().strip_prefix(BLOCK);
    match block.and_then(|inside| inside.strip_suffix(BLOCK)) {
        Some(inside) => {
            let inside = inside.strip_prefix('\n').unwrap_or(inside);
            inside.strip_suffix('\n').unwrap_or(inside).to_owned()
        }
        None => {
            let text = typed.strip_suffix('\\').unwrap_or(typed);
            text.replace("\\\n", "\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_open, typed};

    #[test]
    fn blocks_end_where_they_are_closed() {
        for open in ["\"\"\"", "\"\"\"a\nb", " \"\"\"a\\", "a\\", "\"\"\"a\"\"\" b"] {
            assert!(is_open(open), "{open:?}");
        }
        for (closed, message) in [
            ("\"\"\"a\"\"\"", "a"),
            ("\"\"\"\na\n\nb\n\"\"\"  ", "a\n\nb"),
            ("\"\"\"\"\"\"", ""),
            ("\"\"\"a\\\nb\"\"\"", "a\\\nb"),
            ("a\\\nb", "a\nb"),
            ("say \"\"\"a", "say \"\"\"a"),
            ("", ""),
        ] {
            assert!(!is_open(closed), "{closed:?}");
            assert_eq!(typed(closed), message);
        }
    }
}
