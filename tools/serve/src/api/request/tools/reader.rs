//! Finds calls in a text as it comes.

use serde_json::Value;
use trine::tokenizer::pending;

use super::Calls;
use super::head::Head;
use super::lark::is_text;
use super::loose::Loose;
use super::schema::escaped;
use super::syntax::{Arguments, Syntax};

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
    /// In arguments that are an object.
    Object(Depth),
    /// In arguments whose names are bare.
    Loose(Loose),
    /// Before an argument of a function, or behind all of them.
    Tagged { function: usize, first: bool },
    /// In the value of an argument, which is a text or JSON.
    Value { function: usize, text: bool },
    /// Behind the arguments, before the end of the call.
    Close,
    /// Behind a call, before another one or the end of all.
    Between,
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

    /// The end of the text: pending text is text, but not behind a call, where it is white space or the beginning of
    /// another call that was cut off.
    pub fn finish(&mut self) -> Vec<Piece> {
        let rest = std::mem::take(&mut self.held);
        match self.state {
            CallPart::Text if !rest.is_empty() && self.calls == 0 => vec![Piece::Text(rest)],
            _ => Vec::new(),
        }
    }

    /// Decides about the beginning of what is held; false when more of the text is needed.
    fn advance(&mut self, calls: &Calls, pieces: &mut Vec<Piece>) -> bool {
        match &mut self.state {
            CallPart::Text => self.text(calls, pieces),
            CallPart::Object(depth) => {
                let end = self.held.bytes().position(|byte| depth.ends(byte));
                let rest = self.held.split_off(end.map_or(self.held.len(), |at| at + 1));
                let part = std::mem::replace(&mut self.held, rest);
                if !part.is_empty() {
                    pieces.push(Piece::Arguments(part));
                }
                if end.is_some() {
                    self.state = CallPart::Close;
                }
                end.is_some()
            }
            CallPart::Loose(loose) => {
                let (part, ended) = loose.read(&mut self.held);
                if !part.is_empty() {
                    pieces.push(Piece::Arguments(part));
                }
                if ended {
                    self.state = CallPart::Close;
                }
                ended
            }
            &mut CallPart::Tagged { function, first } => self.tagged(calls, function, first, pieces),
            &mut CallPart::Value { function, text } => self.value(calls, function, text, pieces),
            CallPart::Close => {
                let ended = self.take(calls.syntax.close);
                if ended {
                    self.state = match calls.syntax.behind {
                        "" => CallPart::Text,
                        _ => CallPart::Between,
                    };
                }
                ended
            }
            CallPart::Between => {
                let Syntax { behind, between, .. } = *calls.syntax;
                if self.take(behind) {
                    self.state = CallPart::Text;
                    return true;
                }
                let between = between.unwrap_or("");
                let heads =
                    calls.functions.iter().map(|f| Head::new(&format!("{between}{}", calls.syntax.head(&f.name))));
                let begun = heads.enumerate().find_map(|(function, head)| Some((function, head.begins(&self.held)?)));
                begun.map(|(function, end)| self.begin(calls, function, end, pieces)).is_some()
            }
        }
    }

    /// Takes `text` from the beginning of what is held, where it stands there.
    fn take(&mut self, text: &str) -> bool {
        let found = self.held.starts_with(text);
        if found {
            self.held.drain(..text.len());
        }
        found
    }

    /// A call of a function, whose text before the arguments ends at `end` of what is held.
    fn begin(&mut self, calls: &Calls, function: usize, end: usize, pieces: &mut Vec<Piece>) {
        pieces.push(Piece::Call(calls.functions[function].name.clone()));
        self.held.drain(..end);
        self.state = match calls.syntax.arguments {
            Arguments::Object => CallPart::Object(Depth::default()),
            Arguments::Loose { quote } => {
                pieces.push(Piece::Arguments("{".to_owned()));
                CallPart::Loose(Loose::new(quote))
            }
            Arguments::Tagged { .. } => CallPart::Tagged { function, first: true },
        };
        self.calls += 1;
    }

    /// The name of the next argument, or the end of all.
    fn tagged(&mut self, calls: &Calls, function: usize, first: bool, pieces: &mut Vec<Piece>) -> bool {
        let Arguments::Tagged { open, middle, .. } = calls.syntax.arguments else {
            return false;
        };
        if self.held.starts_with(calls.syntax.close) {
            pieces.push(Piece::Arguments(if first { "{}" } else { "}" }.to_owned()));
            self.state = CallPart::Close;
            return true;
        }
        let Some(end) = self.held.strip_prefix(open).and_then(|rest| rest.find(middle)) else {
            return false;
        };
        let name = &self.held[open.len()..open.len() + end];
        let begin = if first { "{" } else { ", " };
        pieces.push(Piece::Arguments(format!("{begin}{}: ", Value::from(name))));
        let text = is_text(&calls.functions[function].parameters["properties"][name]);
        if text {
            pieces.push(Piece::Arguments("\"".to_owned()));
        }
        self.held.drain(..open.len() + end + middle.len());
        self.state = CallPart::Value { function, text };
        true
    }

    /// More of the value of an argument.
    fn value(&mut self, calls: &Calls, function: usize, text: bool, pieces: &mut Vec<Piece>) -> bool {
        let Arguments::Tagged { close, .. } = calls.syntax.arguments else {
            return false;
        };
        let end = self.held.find(close);
        let certain = end.unwrap_or_else(|| pending(&self.held, &[close]));
        let mut part: String = self.held.drain(..certain).collect();
        if text {
            part = escaped(&part);
        }
        if end.is_some() {
            self.held.drain(..close.len());
            self.state = CallPart::Tagged { function, first: false };
            part += if text { "\"" } else { "" };
        }
        if !part.is_empty() {
            pieces.push(Piece::Arguments(part));
        }
        end.is_some()
    }

    /// True if a place in the pending text is the beginning of the answer.
    fn is_first(&self, at: usize) -> bool {
        !self.begun && self.calls == 0 && at == 0
    }

    fn text(&mut self, calls: &Calls, pieces: &mut Vec<Piece>) -> bool {
        let before = calls.syntax.before;
        let heads: Vec<Head> =
            calls.functions.iter().map(|f| Head::new(&format!("{before}{}", calls.syntax.head(&f.name)))).collect();
        // Where calls have no beginning of their own, they are all of an answer.
        let anywhere = !calls.syntax.mark.is_empty();
        let found = heads.iter().enumerate().filter_map(|(function, head)| {
            let found = head.find(&self.held);
            found.filter(|found| anywhere || self.is_first(found.start)).map(|found| (found, function))
        });
        if let Some((found, function)) = found.min_by_key(|(found, _)| found.start) {
            let before = self.held[..found.start].trim_end();
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            self.begin(calls, function, found.end, pieces);
            return true;
        }
        // The possible beginning of a call is pending, and the white space before it.
        let may = |at: &usize| {
            let rest = &self.held[*at..];
            (anywhere || self.is_first(*at)) && heads.iter().any(|head| head.may_follow(rest))
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

    use super::super::function::Function;
    use super::super::syntax::{BARE, HERMES};
    use super::*;

    fn llama() -> &'static Syntax {
        Syntax::of("<|python_tag|>")
    }

    fn calls(syntax: &'static Syntax) -> Calls {
        let parameters = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array"}}});
        let function = |name: &str| Function { name: name.to_owned(), parameters: parameters.clone() };
        Calls { syntax, functions: vec![function("go"), function("got")], marks: Vec::new() }
    }

    /// The pieces of a text, however it is cut: neighbours of a kind put together.
    #[track_caller]
    fn read(syntax: &'static Syntax, text: &str) -> Vec<Piece> {
        let calls = calls(syntax);
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
            assert_eq!(read(&HERMES, plain), [text(plain)]);
            assert_eq!(read(llama(), plain), [text(plain)]);
        }
        assert_eq!(read(&HERMES, ""), []);
    }

    #[test]
    fn calls_among_texts() {
        let one = "<tool_call>\n{\"name\": \"go\", \"arguments\": {\"a\": \"}\\\"{\", \"b\": [{}]}}\n</tool_call>";
        let [name, arguments] = call("go", "{\"a\": \"}\\\"{\", \"b\": [{}]}");
        let both = [name.clone(), arguments.clone()];
        assert_eq!(read(&HERMES, one), both);
        assert_eq!(read(&HERMES, &format!("Well. \n{one}\n{one}\n")), [&[text("Well.")][..], &both, &both].concat());
        // The end came in the middle of arguments.
        let cut = "<tool_call>\n{\"name\": \"got\", \"arguments\": {\"a\": ";
        assert_eq!(read(&HERMES, cut), call("got", "{\"a\": "));
    }

    #[test]
    fn calls_that_are_all_of_an_answer() {
        let one = "{\"name\": \"got\", \"parameters\": {}}";
        assert_eq!(read(llama(), one), call("got", "{}"));
        assert_eq!(read(llama(), &format!("See {one}")), [text(&format!("See {one}"))]);
        let one = "{\"name\": \"go\", \"arguments\": {}}";
        assert_eq!(read(&BARE, one), call("go", "{}"));
    }

    /// Every way of writing the same two calls.
    #[test]
    fn calls_as_models_write_them() {
        let values = [("go", "{\"a\": \"x < \\\"y\\\"\\n</par\", \"b\": [1, \"<\"]}"), ("got", "{}")];
        for (marks, written) in [
            (
                "<tool_call> <function= <parameter=",
                "<tool_call>\n<function=go>\n<parameter=a>\nx < \"y\"\n</par\n</parameter>\n<parameter=b>\n[1, \"<\"]\n</parameter>\n\
                 </function>\n</tool_call>\n<tool_call>\n<function=got>\n</function>\n</tool_call>",
            ),
            (
                "<tool_call> <arg_key> <arg_value>",
                "<tool_call>go\n<arg_key>a</arg_key>\n<arg_value>x < \"y\"\n</par</arg_value>\n\
                 <arg_key>b</arg_key>\n<arg_value>[1, \"<\"]</arg_value>\n</tool_call>\n<tool_call>got\n</tool_call>",
            ),
            (
                "<minimax:tool_call>",
                "<minimax:tool_call>\n<invoke name=\"go\">\n<parameter name=\"a\">x < \"y\"\n</par</parameter>\n\
                 <parameter name=\"b\">[1, \"<\"]</parameter>\n</invoke>\n<invoke name=\"got\">\n</invoke>\n</minimax:tool_call>",
            ),
            (
                "<seed:tool_call>",
                "<seed:tool_call>\n<function=go>\n<parameter=a>x < \"y\"\n</par</parameter>\n<parameter=b>[1, \"<\"]</parameter>\n\
                 </function>\n</seed:tool_call>\n<seed:tool_call>\n<function=got>\n</function>\n</seed:tool_call>",
            ),
            (
                "<TOOLCALL>",
                "<TOOLCALL>[{\"name\": \"go\", \"arguments\": @}, {\"name\": \"got\", \"arguments\": #}]</TOOLCALL>",
            ),
            ("[TOOL_CALLS] [ARGS]", "[TOOL_CALLS]go[ARGS]@[TOOL_CALLS]got[ARGS]#"),
            (
                "[TOOL_CALLS]",
                "[TOOL_CALLS][{\"name\": \"go\", \"arguments\": @}, {\"name\": \"got\", \"arguments\": #}]",
            ),
            (
                "<｜tool▁calls▁begin｜> ```json",
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>go\n```json\n@\n```<｜tool▁call▁end｜>\n\
                 <｜tool▁call▁begin｜>function<｜tool▁sep｜>got\n```json\n#\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            ),
            (
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>go<｜tool▁sep｜>@<｜tool▁call▁end｜>\
                 <｜tool▁call▁begin｜>got<｜tool▁sep｜>#<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            ),
            ("<|tools_prefix|>", "<|tools_prefix|>[{\"go\": @}, {\"got\": #}]<|tools_suffix|>"),
            (
                "<|tool_call|> <|/tool_call|>",
                "<|tool_call|>[{\"name\": \"go\", \"arguments\": @}, {\"name\": \"got\", \"arguments\": #}]<|/tool_call|>",
            ),
            (
                "<|tool_call|>",
                "<|tool_call|>[{\"name\": \"go\", \"arguments\": @}, {\"name\": \"got\", \"arguments\": #}]",
            ),
            (
                "<|tool_calls_section_begin|>",
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.go:0<|tool_call_argument_begin|>@<|tool_call_end|>\
                 <|tool_call_begin|>functions.got:11<|tool_call_argument_begin|>#<|tool_call_end|><|tool_calls_section_end|>",
            ),
            (
                "<|tool_call>",
                "<|tool_call>call:go{a:<|\"|>x < \"y\"\n</par<|\"|>,b:[1,<|\"|><<|\"|>]}<tool_call|><|tool_call>call:got{}<tool_call|>",
            ),
            (
                "<start_function_call>",
                "<start_function_call>call:go{a:<escape>x < \"y\"\n</par<escape>,b:[1,<escape><<escape>]}<end_function_call>\
                 <start_function_call>call:got{}<end_function_call>",
            ),
            (
                "<|START_ACTION|>",
                "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"go\", \"parameters\": @},\n    \
                 {\"tool_call_id\": \"1\", \"tool_name\": \"got\", \"parameters\": #}\n]<|END_ACTION|>",
            ),
            (
                "<|channel|>commentary <|call|>",
                "<|channel|>commentary to=functions.go <|constrain|>json<|message|>@\
                 <|channel|>commentary to=functions.got <|constrain|>json<|message|>#",
            ),
        ] {
            let syntax = Syntax::of(marks);
            let written = written.replace('@', values[0].1).replace('#', values[1].1);
            let expected: Vec<Piece> = values.iter().flat_map(|(name, arguments)| call(name, arguments)).collect();
            assert_eq!(read(syntax, &written), expected, "{marks}");
            let behind = format!("I look.\n\n{written}");
            assert_eq!(read(syntax, &behind), [&[text("I look.")][..], &expected].concat(), "{marks}");
        }
    }
}
