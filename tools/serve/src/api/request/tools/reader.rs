//! Finds calls in a text as it comes.

use super::Calls;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text outside of calls.
    Text(String),
    /// A call begins.
    Call(String),
    /// More of the arguments of the call that began last.
    Arguments(String),
}

/// Reads a text piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Undecided text: perhaps the beginning of a call, or white space that may stand before one.
    held: String,
    state: CallPart,
    calls: usize,
    /// True if text was found already.
    begun: bool,
}

/// Part of the text that the reader is in.
#[derive(Clone, Debug, Default)]
enum CallPart {
    /// Outside of calls.
    #[default]
    Text,
    /// In arguments.
    Arguments(Depth),
    /// Behind arguments, before the end of the call.
    Tail,
}

/// Position in a JSON value.
#[derive(Clone, Debug, Default)]
struct Depth {
    brackets: usize,
    text: bool,
    escaped: bool,
}

impl Depth {
    /// Takes the next byte; true when the value, an object, ends with it.
    fn ends(&mut self, byte: u8) -> bool {
        if self.text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.text = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.text = true,
            b'{' | b'[' => self.brackets += 1,
            b'}' | b']' => {
                self.brackets = self.brackets.saturating_sub(1);
                return self.brackets == 0;
            }
            _ => {}
        }
        false
    }
}

impl Reader {
    /// Calls so far.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// More of the text.
    pub fn read(&mut self, calls: &Calls, text: &str) -> Vec<Piece> {
        self.held += text;
        let mut pieces = Vec::new();
        while self.advance(calls, &mut pieces) {}
        pieces
    }

    /// The end of the text: pending text is text, but for white space behind a call.
    pub fn finish(&mut self) -> Vec<Piece> {
        let rest = std::mem::take(&mut self.held);
        match self.state {
            CallPart::Text if !rest.is_empty() && (self.calls == 0 || !rest.trim().is_empty()) => {
                vec![Piece::Text(rest)]
            }
            _ => Vec::new(),
        }
    }

    /// True if a place in the pending text is the beginning of the answer.
    fn is_first(&self, at: usize) -> bool {
        !self.begun && self.calls == 0 && at == 0
    }

    /// Decides about the beginning of what is held; false when more of the text is needed.
    fn advance(&mut self, calls: &Calls, pieces: &mut Vec<Piece>) -> bool {
        match &mut self.state {
            CallPart::Text => self.text(calls, pieces),
            CallPart::Arguments(depth) => {
                let end = self.held.bytes().position(|byte| depth.ends(byte));
                let rest = self.held.split_off(end.map_or(self.held.len(), |at| at + 1));
                let part = std::mem::replace(&mut self.held, rest);
                if !part.is_empty() {
                    pieces.push(Piece::Arguments(part));
                }
                if end.is_some() {
                    self.state = CallPart::Tail;
                }
                end.is_some()
            }
            CallPart::Tail => {
                let tail = calls.tail();
                let Some(rest) = self.held.strip_prefix(&tail) else {
                    return false;
                };
                self.held = rest.to_owned();
                self.state = CallPart::Text;
                true
            }
        }
    }

    fn text(&mut self, calls: &Calls, pieces: &mut Vec<Piece>) -> bool {
        let heads = calls.functions.iter().map(|f| (f, calls.head(f)));
        let heads: Vec<_> = heads.collect();
        // Where calls have no beginning of their own, they are all of an answer.
        let anywhere = !calls.begun().is_empty();
        let found = heads.iter().filter_map(|(f, head)| {
            let at = self.held.find(head.as_str());
            at.filter(|at| anywhere || self.is_first(*at)).map(|at| (at, *f, head.len()))
        });
        if let Some((at, function, length)) = found.min_by_key(|(at, ..)| *at) {
            let before = self.held[..at].trim_end();
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(Piece::Call(function.name.clone()));
            self.held.drain(..at + length);
            self.state = CallPart::Arguments(Depth::default());
            self.calls += 1;
            return true;
        }
        // The possible beginning of a call is pending, and the white space before it.
        let may = |at: &usize| {
            let rest = &self.held[*at..];
            (anywhere || self.is_first(*at)) && heads.iter().any(|(_, head)| head.starts_with(rest))
        };
        let mut at = self.held.char_indices().map(|(at, _)| at);
        let certain = at.find(may).unwrap_or(self.held.len());
        let certain = self.held[..certain].trim_end().len();
        if certain > 0 {
            let rest = self.held.split_off(certain);
            pieces.push(Piece::Text(std::mem::replace(&mut self.held, rest)));
            self.begun = true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Function, Style};
    use super::*;

    fn calls(style: Style) -> Calls {
        let function = |name: &str| Function { name: name.to_owned(), parameters: json!({}) };
        Calls { style, functions: vec![function("go"), function("got")] }
    }

    /// The pieces of a text, however it is cut: neighbours of a kind put together.
    #[track_caller]
    fn read(style: Style, text: &str) -> Vec<Piece> {
        let calls = calls(style);
        let by = |size: usize| {
            let mut reader = Reader::default();
            let chars: Vec<char> = text.chars().collect();
            let mut pieces: Vec<Piece> = Vec::new();
            let parts = chars.chunks(size).map(String::from_iter);
            let mut add = |piece| match (pieces.last_mut(), piece) {
                (Some(Piece::Text(a)), Piece::Text(b)) => *a += &b,
                (Some(Piece::Arguments(a)), Piece::Arguments(b)) => *a += &b,
                (_, piece) => pieces.push(piece),
            };
            for part in parts {
                reader.read(&calls, &part).into_iter().for_each(&mut add);
            }
            reader.finish().into_iter().for_each(&mut add);
            pieces
        };
        let whole = by(usize::MAX);
        for size in [1, 2, 3, 7] {
            assert_eq!(by(size), whole, "{text} by {size}");
        }
        whole
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn call(name: &str, arguments: &str) -> [Piece; 2] {
        [Piece::Call(name.to_owned()), Piece::Arguments(arguments.to_owned())]
    }

    #[test]
    fn texts_without_calls_stay_as_they_are() {
        for plain in [" a\n\n", "<tool_call", "a <tool_call>\n{\"name\": \"other\"", "{\"name\""] {
            assert_eq!(read(Style::Hermes, plain), [text(plain)]);
            assert_eq!(read(Style::Llama, plain), [text(plain)]);
        }
        assert_eq!(read(Style::Hermes, ""), []);
    }

    #[test]
    fn calls_among_texts() {
        let one = "<tool_call>\n{\"name\": \"go\", \"arguments\": {\"a\": \"}\\\"{\", \"b\": [{}]}}\n</tool_call>";
        let [name, arguments] = call("go", "{\"a\": \"}\\\"{\", \"b\": [{}]}");
        let both = [name.clone(), arguments.clone()];
        assert_eq!(read(Style::Hermes, one), both);
        assert_eq!(
            read(Style::Hermes, &format!("Well. \n{one}\n{one}\n")),
            [&[text("Well.")][..], &both, &both].concat()
        );
        // The end came in the middle of arguments.
        let cut = "<tool_call>\n{\"name\": \"got\", \"arguments\": {\"a\": ";
        assert_eq!(read(Style::Hermes, cut), call("got", "{\"a\": "));
    }

    #[test]
    fn calls_that_are_all_of_an_answer() {
        let one = "{\"name\": \"got\", \"parameters\": {}}";
        assert_eq!(read(Style::Llama, one), call("got", "{}"));
        assert_eq!(read(Style::Llama, &format!("See {one}")), [text(&format!("See {one}"))]);
        let one = "{\"name\": \"go\", \"arguments\": {}}";
        assert_eq!(read(Style::Bare, one), call("go", "{}"));
    }
}
