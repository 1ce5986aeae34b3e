//! Thoughts of a model: the text between its marks, which is kept apart from the answer.

use crate::tokenizer::{Tokenizer, pending};

/// The marks between which a model writes its thoughts.
#[derive(Debug, PartialEq, Eq)]
pub struct ThoughtMarks {
    begin: &'static str,
    end: &'static str,
    /// Texts that stand around answers and belong to nothing. A model with such writes several parts in a row, each with
    /// its kind before it, so thoughts may come again behind an answer.
    frames: &'static [&'static str],
    /// The text by which a template with these marks is known.
    known_by: &'static str,
}

/// The marks of most models.
const THINK: ThoughtMarks = ThoughtMarks { begin: "<think>", end: "</think>", frames: &[], known_by: "</think>" };

/// All marks, each before those that it would also be taken for.
static KNOWN: &[ThoughtMarks] = &[
    // gpt-oss: every part is a message with its channel.
    ThoughtMarks {
        begin: "<|channel|>analysis<|message|>",
        end: "<|end|>",
        frames: &["<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>", "<|end|>"],
        known_by: "<|channel|>analysis<|message|>",
    },
    // Command R7B, Command A
    ThoughtMarks {
        begin: "<|START_THINKING|>",
        end: "<|END_THINKING|>",
        frames: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
        known_by: "<|START_THINKING|>",
    },
    // Gemma 4
    ThoughtMarks { begin: "<|channel>thought", end: "<channel|>", frames: &[], known_by: "<|channel>thought" },
    // Seed OSS
    ThoughtMarks { begin: "<seed:think>", end: "</seed:think>", frames: &[], known_by: "</seed:think>" },
    // Magistral, Ministral 3
    ThoughtMarks { begin: "[THINK]", end: "[/THINK]", frames: &[], known_by: "[/THINK]" },
    THINK,
];

impl ThoughtMarks {
    /// The marks that a chat template tells; `None` where it knows no thoughts.
    pub fn of(template: &str) -> Option<&'static ThoughtMarks> {
        KNOWN.iter().find(|marks| template.contains(marks.known_by))
    }

    /// True for `<think>`, which everybody reads.
    pub fn are_usual(&self) -> bool {
        *self == THINK
    }

    /// True if one of the marks has this text in it.
    pub fn write(&self, text: &str) -> bool {
        [self.begin, self.end].iter().chain(self.frames).any(|mark| mark.contains(text))
    }

    /// The control tokens of which the marks are made. A generation has to show them, or nobody sees the marks.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let text = |id| String::from_utf8_lossy(&tokenizer.piece(id, true)).into_owned();
        tokenizer.controls().filter(|&id| !tokenizer.is_eog(id) && self.write(&text(id))).collect()
    }
}

/// Takes thoughts out of a text as it comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thoughts {
    /// `None`: there are no thoughts in the text.
    marks: Option<&'static ThoughtMarks>,
    place: Position,
    /// Undecided text: perhaps a part of a mark, or white space beside one.
    held: String,
    /// Stands before the next thought: thoughts in several parts are one text of several paragraphs.
    between: &'static str,
    /// True if there was a thought.
    begun: bool,
}

/// Position of the reader in the text.
#[derive(Clone, Debug, Default, PartialEq)]
enum Position {
    /// In the answer.
    #[default]
    Answer,
    /// At the beginning of the text.
    Begin,
    /// In white space behind a mark, of which that before a thought is `true`.
    Behind(bool),
    /// In a thought.
    Thought,
}

/// A part of a text: of the thoughts, and of the answer behind them.
pub type Parted = (String, String);

impl Thoughts {
    /// Thoughts of a text with these marks that goes on after `before`, in which one may have begun.
    pub fn after(marks: &'static ThoughtMarks, before: &str) -> Thoughts {
        let place = if before.trim_end().ends_with(marks.begin) { Position::Behind(true) } else { Position::Begin };
        Thoughts { marks: Some(marks), place, ..Thoughts::default() }
    }

    /// Takes the next part of the text.
    pub fn read(&mut self, text: &str) -> Parted {
        let Some(marks) = self.marks else {
            return (String::new(), text.to_owned());
        };
        self.held += text;
        let mut out = Parted::default();
        while self.advance(marks, &mut out) {}
        out
    }

    /// Takes the end of the text.
    pub fn finish(&mut self) -> Parted {
        let rest = std::mem::take(&mut self.held);
        match std::mem::take(&mut self.place) {
            Position::Thought => {
                let mut out = Parted::default();
                self.think(rest.trim_end(), &mut out);
                out
            }
            Position::Behind(true) => Parted::default(),
            Position::Behind(false) | Position::Begin | Position::Answer => (String::new(), rest),
        }
    }

    /// Decides about the beginning of what is held; false when more of the text is needed.
    fn advance(&mut self, marks: &ThoughtMarks, out: &mut Parted) -> bool {
        match self.place {
            Position::Answer => self.answer(marks, out),
            Position::Begin => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(marks.begin) {
                    self.held = rest.to_owned();
                    self.place = Position::Behind(true);
                } else if marks.begin.starts_with(text) {
                    return false;
                } else {
                    self.place = Position::Answer;
                }
                true
            }
            Position::Behind(thought) => {
                self.held = self.held.trim_start().to_owned();
                if self.held.is_empty() {
                    return false;
                }
                self.place = if thought { Position::Thought } else { Position::Answer };
                true
            }
            Position::Thought => {
                let end = self.held.find(marks.end);
                let certain = end.unwrap_or_else(|| pending(&self.held, &[marks.end]));
                let rest = self.held.split_off(certain);
                let text = std::mem::replace(&mut self.held, rest);
                let thought = text.trim_end();
                self.think(thought, out);
                match end {
                    Some(_) => {
                        self.held.drain(..marks.end.len());
                        self.place = Position::Behind(false);
                        self.between = if self.begun { "\n\n" } else { "" };
                    }
                    // White space is a part of the thought where more of it follows.
                    None => self.held.insert_str(0, &text[thought.len()..]),
                }
                end.is_some()
            }
        }
    }

    /// More of a thought.
    fn think(&mut self, text: &str, out: &mut Parted) {
        if !text.is_empty() {
            out.0 += std::mem::take(&mut self.between);
            out.0 += text;
            self.begun = true;
        }
    }

    /// More of the answer, up to the next mark where there may be one.
    fn answer(&mut self, marks: &ThoughtMarks, out: &mut Parted) -> bool {
        if marks.frames.is_empty() {
            out.1 += &std::mem::take(&mut self.held);
            return false;
        }
        let all: Vec<&str> = marks.frames.iter().copied().chain([marks.begin]).collect();
        let found = all.iter().filter_map(|mark| Some((self.held.find(mark)?, *mark))).min_by_key(|(at, _)| *at);
        let certain = found.map_or_else(|| pending(&self.held, &all), |(at, _)| at);
        out.1.extend(self.held.drain(..certain));
        let Some((_, mark)) = found else {
            return false;
        };
        self.held.drain(..mark.len());
        if mark == marks.begin {
            self.place = Position::Behind(true);
        }
        true
    }
}

/// Writes thoughts anew between the usual marks.
#[derive(Debug, Default)]
pub struct Retold {
    thoughts: Thoughts,
    /// True between the marks.
    inside: bool,
    /// The thoughts and the answer so far.
    pub so_far: Parted,
}

impl Retold {
    /// Thoughts and answers as `thoughts` reads them.
    pub fn new(thoughts: Thoughts) -> Retold {
        Retold { thoughts, ..Retold::default() }
    }

    /// The next part of the text; `last` if nothing follows.
    pub fn read(&mut self, text: &str, last: bool) -> String {
        let (mut thought, mut answer) = self.thoughts.read(text);
        if last {
            let (more, rest) = self.thoughts.finish();
            thought += &more;
            answer += &rest;
        }
        let mut out = String::new();
        if !thought.is_empty() && !self.inside {
            out += "<think>\n";
            self.inside = true;
        }
        out += &thought;
        if self.inside && (last || !answer.is_empty()) {
            out += "\n</think>\n\n";
            self.inside = false;
        }
        out += &answer;
        self.so_far.0 += &thought;
        self.so_far.1 += &answer;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thoughts and the answer of a text behind `before`, however it is cut.
    #[track_caller]
    fn parted(marks: &'static ThoughtMarks, before: &str, text: &str) -> Parted {
        let by = |size: usize| {
            let mut thoughts = Thoughts::after(marks, before);
            let mut all = Parted::default();
            let chars: Vec<char> = text.chars().collect();
            let parts = chars.chunks(size).map(String::from_iter).map(|part| thoughts.read(&part));
            let mut parts: Vec<Parted> = parts.collect();
            parts.push(thoughts.finish());
            for (thought, answer) in parts {
                assert!(
                    thought.is_empty() || all.1.is_empty() || !marks.frames.is_empty(),
                    "a thought behind the answer"
                );
                all.0 += &thought;
                all.1 += &answer;
            }
            all
        };
        let whole = by(usize::MAX);
        for size in [1, 2, 3, 7] {
            assert_eq!(by(size), whole, "{text} by {size}");
        }
        whole
    }

    fn pair(thought: &str, answer: &str) -> Parted {
        (thought.to_owned(), answer.to_owned())
    }

    #[test]
    fn thoughts_are_what_stands_between_the_marks() {
        for (before, text, thought, answer) in [
            ("", "<think>\nSo é: 1 < 2\n</think>\n\nYes", "So é: 1 < 2", "Yes"),
            ("", " <think></think>Yes ", "", "Yes "),
            ("", " Yes <think>no</think>", "", " Yes <think>no</think>"),
            ("", "<thin", "", "<thin"),
            ("", "<think>cut of", "cut of", ""),
            ("assistant\n<think>\n", "\nSo </thin k</think>Yes</think>", "So </thin k", "Yes</think>"),
            ("<think>", "cut off </th", "cut off </th", ""),
            ("<think>", "", "", ""),
        ] {
            assert_eq!(parted(&THINK, before, text), pair(thought, answer), "{text}");
        }
        assert_eq!(Thoughts::default().read("<think>a</think>b"), pair("", "<think>a</think>b"));
    }

    #[test]
    fn every_template_has_its_marks() {
        for marks in KNOWN {
            assert_eq!(ThoughtMarks::of(&format!("{{{{ '{}' }}}}", marks.known_by)), Some(marks));
            assert!(marks.begin.contains(marks.known_by) || marks.end.contains(marks.known_by));
            let text = format!("{}\nfirst\n{}\n\nlast", marks.begin, marks.end);
            assert_eq!(parted(marks, "", &text), pair("first", "last"), "{marks:?}");
        }
        assert_eq!(ThoughtMarks::of("{{ messages }}"), None);
        assert!(THINK.are_usual() && !KNOWN[0].are_usual());
    }

    #[test]
    fn messages_of_channels() {
        let marks = &KNOWN[0];
        for (text, thought, answer) in [
            (
                "<|channel|>analysis<|message|>Well, 1 <|en < 2.<|end|><|start|>assistant<|channel|>final<|message|>Yes: <|",
                "Well, 1 <|en < 2.",
                "Yes: <|",
            ),
            (
                "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>I look. <|end|>\
                 <|start|>assistant<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>Yes",
                "One.\n\nTwo.",
                "I look. Yes",
            ),
            // A call is the affair of whoever reads calls.
            (
                "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary to=functions.go json<|message|>{}",
                "One.",
                "<|channel|>commentary to=functions.go json<|message|>{}",
            ),
            ("<|channel|>final<|message|>Yes", "", "Yes"),
        ] {
            assert_eq!(parted(marks, "<|start|>assistant", text), pair(thought, answer), "{text}");
        }
    }

    #[test]
    fn retold_thoughts_have_the_usual_marks() {
        let text = "<|channel|>analysis<|message|>Well.<|end|><|start|>assistant<|channel|>final<|message|>Yes";
        let retell = |text: &str, size: usize| {
            let mut retold = Retold::new(Thoughts::after(&KNOWN[0], ""));
            let chars: Vec<char> = text.chars().collect();
            let mut out: String = chars.chunks(size).map(|part| retold.read(&String::from_iter(part), false)).collect();
            out += &retold.read("", true);
            (out, retold.so_far)
        };
        for size in [1, 3, 1000] {
            let (out, so_far) = retell(text, size);
            assert_eq!(out, "<think>\nWell.\n</think>\n\nYes");
            assert_eq!(so_far, pair("Well.", "Yes"));
            assert_eq!(retell("<|channel|>analysis<|message|>Well", size).0, "<think>\nWell\n</think>\n\n");
        }
    }
}
