//! An answer as a row of items, texts and calls of functions: what `/v1/responses` and `/v1/messages` send.

use trine::chat::{Parted, Thoughts};

use crate::api::request::tools::Calls;
use crate::api::request::tools::reader::{Piece, Reader};

/// Something that happens to an item. The number is the place of the item in the answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A thought begins.
    Thought(usize),
    /// More of the thought.
    Thinks(usize, String),
    /// The thought is whole.
    ThoughtEnds(usize, String),
    /// A text begins.
    Text(usize),
    /// More of the text.
    More(usize, String),
    /// The text is whole.
    TextEnds(usize, String),
    /// A call of the function begins.
    Call(usize, String),
    /// More of its arguments.
    Arguments(usize, String),
    /// The call is whole: the function, and its arguments.
    CallEnds(usize, String, String),
}

/// The items of a text as it comes.
#[derive(Clone, Debug, Default)]
pub struct Items {
    thoughts: Thoughts,
    reader: Reader,
    open: Open,
    /// Items that began.
    begun: usize,
}

#[derive(Clone, Debug, Default)]
enum Open {
    #[default]
    Nothing,
    Thought(String),
    Text(String),
    Call(String, String),
}

impl Items {
    /// No items yet, of a text that `thoughts` are taken out of.
    pub fn new(thoughts: &Thoughts) -> Items {
        Items { thoughts: thoughts.clone(), ..Items::default() }
    }

    /// More of the text, in which there may be `calls`.
    pub fn read(&mut self, calls: Option<&Calls>, text: &str) -> Vec<Step> {
        let parted = self.thoughts.read(text);
        self.parted(calls, parted)
    }

    fn parted(&mut self, calls: Option<&Calls>, (thought, text): Parted) -> Vec<Step> {
        let mut steps = self.thought(thought);
        let pieces = match calls {
            Some(calls) => self.reader.read(calls, &text),
            None => vec![Piece::Text(text)],
        };
        steps.extend(self.steps(pieces));
        steps
    }

    /// More of a thought, an item of its own where it comes behind something else.
    fn thought(&mut self, more: String) -> Vec<Step> {
        let mut steps = Vec::new();
        if more.is_empty() {
            return steps;
        }
        if !matches!(self.open, Open::Thought(_)) {
            self.close(&mut steps);
            steps.push(Step::Thought(self.begun));
            self.open = Open::Thought(String::new());
            self.begun += 1;
        }
        if let Open::Thought(thought) = &mut self.open {
            *thought += &more;
        }
        steps.push(Step::Thinks(self.begun - 1, more));
        steps
    }

    /// The end of the text. An answer has at least one item, and be it an empty text.
    pub fn finish(&mut self, calls: Option<&Calls>) -> Vec<Step> {
        let parted = self.thoughts.finish();
        let mut steps = self.parted(calls, parted);
        let pieces = self.reader.finish();
        steps.extend(self.steps(pieces));
        if self.begun == 0 {
            steps.push(Step::Text(0));
            self.open = Open::Text(String::new());
            self.begun = 1;
        }
        self.close(&mut steps);
        steps
    }

    /// Calls so far.
    pub fn calls(&self) -> usize {
        self.reader.calls()
    }

    fn steps(&mut self, pieces: Vec<Piece>) -> Vec<Step> {
        let mut steps = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) if text.is_empty() => {}
                Piece::Text(more) => {
                    if !matches!(self.open, Open::Text(_)) {
                        self.close(&mut steps);
                        steps.push(Step::Text(self.begun));
                        self.open = Open::Text(String::new());
                        self.begun += 1;
                    }
                    if let Open::Text(text) = &mut self.open {
                        *text += &more;
                    }
                    steps.push(Step::More(self.begun - 1, more));
                }
                Piece::Call(name) => {
                    self.close(&mut steps);
                    steps.push(Step::Call(self.begun, name.clone()));
                    self.open = Open::Call(name, String::new());
                    self.begun += 1;
                }
                Piece::Arguments(more) => {
                    if let Open::Call(_, arguments) = &mut self.open {
                        *arguments += &more;
                        steps.push(Step::Arguments(self.begun - 1, more));
                    }
                }
            }
        }
        steps
    }

    fn close(&mut self, steps: &mut Vec<Step>) {
        match std::mem::take(&mut self.open) {
            Open::Nothing => {}
            Open::Thought(thought) => steps.push(Step::ThoughtEnds(self.begun - 1, thought)),
            Open::Text(text) => steps.push(Step::TextEnds(self.begun - 1, text)),
            Open::Call(name, arguments) => {
                steps.push(Step::CallEnds(self.begun - 1, name, arguments));
            }
        }
    }
}
