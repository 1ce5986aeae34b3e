//! Thoughts of a model: the text between its marks, which is kept apart from the answer.

use super::fields::Fields;
use crate::error::ApiError;
use crate::service::Service;

/// The marks.
const BEGIN: &str = "<think>";
const END: &str = "</think>";
/// Tokens at the end of a prompt that may hold the first mark.
const LAST: usize = 12;

/// Takes thoughts out of a text as it comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thoughts {
    place: Position,
    /// Undecided text: perhaps a part of a mark, or white space beside one.
    held: String,
}

/// Position of the reader in the text.
#[derive(Clone, Debug, Default, PartialEq)]
enum Position {
    /// No thoughts come any more.
    #[default]
    Answer,
    /// At the beginning of the text.
    Begin,
    /// In white space behind a mark, of which the first is `true`.
    Behind(bool),
    /// In a thought.
    Thought,
}

/// A part of a text: of the thoughts, and of the answer behind them.
pub type Parted = (String, String);

impl Thoughts {
    /// Returns what a request with this prompt asks for: where the template of the model knows thoughts, they are taken
    /// out unless `reasoning_format`, of the request or else of the server, is "none".
    ///
    /// # Errors
    /// There is no such format.
    pub fn asked(f: &Fields<'_>, prompt: &[u32], service: &Service) -> Result<Thoughts, ApiError> {
        const NAME: &str = "reasoning_format";
        let place = match f.text(NAME)? {
            Some("none") => Position::Answer,
            None if !service.limits.thoughts => Position::Answer,
            None | Some("auto" | "deepseek") if !Thoughts::are_known(service) => Position::Answer,
            None | Some("auto" | "deepseek") => {
                let last = service.text_of(&prompt[prompt.len().saturating_sub(LAST)..]);
                let begun = last.trim_end().ends_with(BEGIN);
                if begun { Position::Behind(true) } else { Position::Begin }
            }
            Some(_) => return Err(ApiError::field(NAME, "must be \"none\", \"auto\" or \"deepseek\"")),
        };
        Ok(Thoughts { place, held: String::new() })
    }

    /// True if the template of the model knows thoughts.
    pub fn are_known(service: &Service) -> bool {
        service.template().is_ok_and(|template| Thoughts::are_known_in(template.source()))
    }

    /// True if a template with this source does.
    pub fn are_known_in(source: &str) -> bool {
        source.contains(END)
    }

    /// Takes the next part of the text.
    pub fn read(&mut self, text: &str) -> Parted {
        self.held += text;
        let mut out = Parted::default();
        while self.advance(&mut out) {}
        out
    }

    /// Takes the end of the text.
    pub fn finish(&mut self) -> Parted {
        let rest = std::mem::take(&mut self.held);
        match std::mem::take(&mut self.place) {
            Position::Thought => (rest.trim_end().to_owned(), String::new()),
            Position::Behind(true) => Parted::default(),
            Position::Behind(false) | Position::Begin | Position::Answer => (String::new(), rest),
        }
    }

    /// Decides about the beginning of what is held; false when more of the text is needed.
    fn advance(&mut self, out: &mut Parted) -> bool {
        match self.place {
            Position::Answer => {
                out.1 += &std::mem::take(&mut self.held);
                false
            }
            Position::Begin => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(BEGIN) {
                    self.held = rest.to_owned();
                    self.place = Position::Behind(true);
                } else if BEGIN.starts_with(text) {
                    return false;
                } else {
                    self.place = Position::Answer;
                }
                true
            }
            Position::Behind(first) => {
                self.held = self.held.trim_start().to_owned();
                if self.held.is_empty() {
                    return false;
                }
                self.place = if first { Position::Thought } else { Position::Answer };
                true
            }
            Position::Thought => {
                if let Some(at) = self.held.find(END) {
                    out.0 += self.held[..at].trim_end();
                    self.held.drain(..at + END.len());
                    self.place = Position::Behind(false);
                    return true;
                }
                let mark = self.held.char_indices().map(|(at, _)| at).find(|at| END.starts_with(&self.held[*at..]));
                let certain = self.held[..mark.unwrap_or(self.held.len())].trim_end().len();
                out.0.extend(self.held.drain(..certain));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thoughts and the answer of a text, however it is cut.
    #[track_caller]
    fn parted(begun: bool, text: &str) -> Parted {
        let by = |size: usize| {
            let place = if begun { Position::Behind(true) } else { Position::Begin };
            let mut thoughts = Thoughts { place, held: String::new() };
            let mut all = Parted::default();
            let chars: Vec<char> = text.chars().collect();
            let parts = chars.chunks(size).map(String::from_iter).map(|part| thoughts.read(&part));
            let mut parts: Vec<Parted> = parts.collect();
            parts.push(thoughts.finish());
            for (thought, answer) in parts {
                assert!(thought.is_empty() || all.1.is_empty(), "a thought behind the answer");
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

    #[test]
    fn thoughts_are_what_stands_between_the_marks() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        for (begun, text, thought, answer) in [
            (false, "<think>\nSo é: 1 < 2\n</think>\n\nYes", "So é: 1 < 2", "Yes"),
            (false, " <think></think>Yes ", "", "Yes "),
            (false, " Yes <think>no</think>", "", " Yes <think>no</think>"),
            (false, "<thin", "", "<thin"),
            (false, "<think>cut of", "cut of", ""),
            (true, "\nSo </thin k</think>Yes</think>", "So </thin k", "Yes</think>"),
            (true, "cut off </th", "cut off </th", ""),
            (true, "", "", ""),
        ] {
            assert_eq!(parted(begun, text), pair(thought, answer), "{text}");
        }
        assert_eq!(Thoughts::default().read("<think>a</think>b"), pair("", "<think>a</think>b"));
    }
}
