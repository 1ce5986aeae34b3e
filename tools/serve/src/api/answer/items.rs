//! An answer as a row of items, texts and calls of functions: what `/v1/responses` and `/v1/messages` send.

use crate::api::request::tools::Calls;
use crate::api::request::tools::reader::{Piece, Reader};

/// Something that happens to an item. The number is the place of the item in the answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
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
    reader: Reader,
    open: Open,
    /// Items that began.
    begun: usize,
}

#[derive(Clone, Debug, Default)]
enum Open {
    #[default]
    Nothing,
    Text(String),
    Call(String, String),
}

impl Items {
    /// More of the text, in which there may be `calls`.
    pub fn read(&mut self, calls: Option<&Calls>, text: &str) -> Vec<Step> {
        let pieces = match calls {
            Some(calls) => self.reader.read(calls, text),
            None => vec![Piece::Text(text.to_owned())],
        };
        self.steps(pieces)
    }

    /// The end of the text. An answer has at least one item, and be it an empty text.
    pub fn finish(&mut self) -> Vec<Step> {
        let pieces = self.reader.finish();
        let mut steps = self.steps(pieces);
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
            Open::Text(text) => steps.push(Step::TextEnds(self.begun - 1, text)),
            Open::Call(name, arguments) => {
                steps.push(Step::CallEnds(self.begun - 1, name, arguments));
            }
        }
    }
}
