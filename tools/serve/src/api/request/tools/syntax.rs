//! How models write calls of functions: one row for each way, found by what the chat template has.

/// A way to write calls.
///
/// An answer with calls is, behind any text where `mark` says that a call begins,
/// `before call (between call)* behind`, and a call is `open NAME middle ARGUMENTS close`. In `open` or `middle` may stand
/// a number that the model chooses ([`NUMBER`](super::head::NUMBER)).
#[derive(Debug, PartialEq)]
pub struct Syntax {
    /// The text by which a call in the middle of a text is known. Without one calls are all of an answer.
    pub mark: &'static str,
    pub before: &'static str,
    pub open: &'static str,
    pub middle: &'static str,
    pub arguments: Arguments,
    pub close: &'static str,
    /// `None` where an answer has one call.
    pub between: Option<&'static str>,
    pub behind: &'static str,
    /// True if the model knows a call by its function and its place among all calls: `functions.NAME:PLACE`.
    pub counts: bool,
    /// Texts of which the template has all.
    known_by: &'static [&'static str],
}

/// How arguments are written.
#[derive(Debug, PartialEq)]
pub enum Arguments {
    /// As a JSON object.
    Object,
    /// Each by itself: `open NAME middle VALUE close`. A value that is a text stands as it is, any other is JSON.
    Tagged { open: &'static str, middle: &'static str, close: &'static str },
    /// As an object with bare names, whose texts stand between marks. Its first bracket is the end of the call's `middle`.
    Loose { quote: &'static str },
}

/// An object with the name and the arguments, in a frame of its own.
const OBJECT: Syntax = Syntax {
    mark: "",
    before: "",
    open: "{\"name\": \"",
    middle: "\", \"arguments\": ",
    arguments: Arguments::Object,
    close: "}",
    between: None,
    behind: "",
    counts: false,
    known_by: &[],
};

/// That of models of which nobody knows how they call: an object and nothing else.
pub const BARE: Syntax = OBJECT;

/// `<tool_call>`, as Hermes and Qwen 2.5 and 3 write it, and models that are told how to by trine.
pub const HERMES: Syntax = Syntax {
    mark: "<tool_call>",
    open: "<tool_call>\n{\"name\": \"",
    close: "}\n</tool_call>",
    between: Some("\n"),
    known_by: &["<tool_call>"],
    ..OBJECT
};

/// All ways that a template tells, each before those that it would also be taken for.
static KNOWN: &[Syntax] = &[
    // Qwen 3 Coder, Qwen 3.5, Bonsai 2, Nemotron 3, Step 3.5
    Syntax {
        open: "<tool_call>\n<function=",
        middle: ">\n",
        arguments: Arguments::Tagged { open: "<parameter=", middle: ">\n", close: "\n</parameter>\n" },
        close: "</function>\n</tool_call>",
        known_by: &["<tool_call>", "<function=", "<parameter="],
        ..HERMES
    },
    // GLM 4.5 and later
    Syntax {
        open: "<tool_call>",
        middle: "\n",
        arguments: Arguments::Tagged { open: "<arg_key>", middle: "</arg_key>\n<arg_value>", close: "</arg_value>\n" },
        close: "</tool_call>",
        known_by: &["<tool_call>", "<arg_key>", "<arg_value>"],
        ..HERMES
    },
    // MiniMax M2
    Syntax {
        mark: "<minimax:tool_call>",
        before: "<minimax:tool_call>\n",
        open: "<invoke name=\"",
        middle: "\">\n",
        arguments: Arguments::Tagged { open: "<parameter name=\"", middle: "\">", close: "</parameter>\n" },
        close: "</invoke>\n",
        between: Some(""),
        behind: "</minimax:tool_call>",
        known_by: &["<minimax:tool_call>"],
        ..OBJECT
    },
    // Seed OSS
    Syntax {
        mark: "<seed:tool_call>",
        open: "<seed:tool_call>\n<function=",
        middle: ">\n",
        arguments: Arguments::Tagged { open: "<parameter=", middle: ">", close: "</parameter>\n" },
        close: "</function>\n</seed:tool_call>",
        between: Some("\n"),
        known_by: &["<seed:tool_call>"],
        ..OBJECT
    },
    // Nemotron Nano 2
    Syntax {
        mark: "<TOOLCALL>",
        before: "<TOOLCALL>[",
        between: Some(", "),
        behind: "]</TOOLCALL>",
        known_by: &["<TOOLCALL>"],
        ..OBJECT
    },
    HERMES,
    // Mistral Small 3.2, Magistral, Devstral, Ministral 3
    Syntax {
        mark: "[TOOL_CALLS]",
        open: "[TOOL_CALLS]",
        middle: "[ARGS]",
        close: "",
        between: Some(""),
        known_by: &["[TOOL_CALLS]", "[ARGS]"],
        ..OBJECT
    },
    // Mistral Nemo and Small before
    Syntax {
        mark: "[TOOL_CALLS]",
        before: "[TOOL_CALLS][",
        between: Some(", "),
        behind: "]",
        known_by: &["[TOOL_CALLS]"],
        ..OBJECT
    },
    // DeepSeek V3 and R1
    Syntax {
        mark: "<｜tool▁calls▁begin｜>",
        before: "<｜tool▁calls▁begin｜>",
        open: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        middle: "\n```json\n",
        close: "\n```<｜tool▁call▁end｜>",
        between: Some("\n"),
        behind: "<｜tool▁calls▁end｜>",
        known_by: &["<｜tool▁calls▁begin｜>", "```json"],
        ..OBJECT
    },
    // DeepSeek V3.1
    Syntax {
        mark: "<｜tool▁calls▁begin｜>",
        before: "<｜tool▁calls▁begin｜>",
        open: "<｜tool▁call▁begin｜>",
        middle: "<｜tool▁sep｜>",
        close: "<｜tool▁call▁end｜>",
        between: Some(""),
        behind: "<｜tool▁calls▁end｜>",
        known_by: &["<｜tool▁calls▁begin｜>"],
        ..OBJECT
    },
    // Kimi K2
    Syntax {
        mark: "<|tool_calls_section_begin|>",
        before: "<|tool_calls_section_begin|>",
        open: "<|tool_call_begin|>functions.",
        middle: ":\0<|tool_call_argument_begin|>",
        close: "<|tool_call_end|>",
        between: Some(""),
        behind: "<|tool_calls_section_end|>",
        counts: true,
        known_by: &["<|tool_calls_section_begin|>"],
        ..OBJECT
    },
    // Command R7B, Command A
    Syntax {
        mark: "<|START_ACTION|>",
        before: "<|START_ACTION|>[\n    ",
        open: "{\"tool_call_id\": \"\0\", \"tool_name\": \"",
        middle: "\", \"parameters\": ",
        between: Some(",\n    "),
        behind: "\n]<|END_ACTION|>",
        known_by: &["<|START_ACTION|>"],
        ..OBJECT
    },
    // gpt-oss, which ends its text with a token of its own behind a call
    Syntax {
        mark: "<|channel|>commentary to=functions.",
        open: "<|channel|>commentary to=functions.",
        middle: " <|constrain|>json<|message|>",
        close: "",
        between: Some(""),
        known_by: &["<|channel|>commentary", "<|call|>"],
        ..OBJECT
    },
    // Gemma 4
    Syntax {
        mark: "<|tool_call>",
        open: "<|tool_call>call:",
        middle: "{",
        arguments: Arguments::Loose { quote: "<|\"|>" },
        close: "<tool_call|>",
        between: Some(""),
        known_by: &["<|tool_call>"],
        ..OBJECT
    },
    // FunctionGemma
    Syntax {
        mark: "<start_function_call>",
        open: "<start_function_call>call:",
        middle: "{",
        arguments: Arguments::Loose { quote: "<escape>" },
        close: "<end_function_call>",
        between: Some(""),
        known_by: &["<start_function_call>"],
        ..OBJECT
    },
    // Apertus
    Syntax {
        mark: "<|tools_prefix|>",
        before: "<|tools_prefix|>[",
        open: "{\"",
        middle: "\": ",
        between: Some(", "),
        behind: "]<|tools_suffix|>",
        known_by: &["<|tools_prefix|>"],
        ..OBJECT
    },
    // Phi 4 mini
    Syntax {
        mark: "<|tool_call|>",
        before: "<|tool_call|>[",
        between: Some(", "),
        behind: "]<|/tool_call|>",
        known_by: &["<|tool_call|>", "<|/tool_call|>"],
        ..OBJECT
    },
    // Granite 3
    Syntax {
        mark: "<|tool_call|>",
        before: "<|tool_call|>[",
        between: Some(", "),
        behind: "]",
        known_by: &["<|tool_call|>"],
        ..OBJECT
    },
    // Llama 3
    Syntax { middle: "\", \"parameters\": ", known_by: &["<|python_tag|>"], ..OBJECT },
    Syntax { middle: "\", \"parameters\": ", known_by: &["\"parameters\": "], ..OBJECT },
];

impl Syntax {
    /// The way that a template tells; [`BARE`] where it tells none.
    pub fn of(template: &str) -> &'static Syntax {
        KNOWN.iter().find(|known| known.known_by.iter().all(|text| template.contains(text))).unwrap_or(&BARE)
    }

    /// True if a template told it.
    pub fn is_known(&self) -> bool {
        !self.known_by.is_empty()
    }

    /// True if calls have this text in them.
    pub fn writes(&self, text: &str) -> bool {
        let Syntax { mark, before, open, middle, close, between, behind, .. } = self;
        let tagged = match self.arguments {
            Arguments::Object => [""; 3],
            Arguments::Loose { quote } => [quote, "", ""],
            Arguments::Tagged { open, middle, close } => [open, middle, close],
        };
        let all = [mark, before, open, middle, close, between.unwrap_or(""), behind];
        all.into_iter().chain(tagged).any(|written| written.contains(text))
    }

    /// The text of a call before its arguments.
    pub fn head(&self, function: &str) -> String {
        let Syntax { open, middle, .. } = self;
        format!("{open}{function}{middle}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_found_by_what_it_writes() {
        for syntax in KNOWN {
            let template = syntax.known_by.join(" ");
            let found = Syntax::of(&template);
            assert_eq!(found, syntax);
            // a call in the middle of a text is known by the first thing that is written
            let first = format!("{}{}", syntax.before, syntax.open);
            assert!(first.starts_with(syntax.mark), "{syntax:?}");
            assert!(syntax.mark.is_empty() == syntax.between.is_none(), "{syntax:?}");
        }
        assert_eq!(Syntax::of("{{ tools }}"), &BARE);
        assert!(!BARE.is_known());
    }
}
