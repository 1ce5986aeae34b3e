//! Texts that begin alike, as the model gets them.

use super::TaskError;
use super::log_prob::TokenScore;
use super::malformed;
use crate::tokenizer::Tokenizer;

/// Which row of logits: that of the last token that all texts share, or that of a token of one text behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOf {
    /// The last shared token.
    Shared,
    /// Token `position` of text `text`, counted from the text's beginning.
    Text { text: usize, position: usize },
}

/// A logarithm of a probability that a task needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub row: RowOf,
    pub token: u32,
    pub score: TokenScore,
}

/// The texts of a task.
#[derive(Clone, Debug)]
pub struct Branches {
    /// Where the task stands in its file.
    pub place: String,
    /// Tokens of each text.
    pub texts: Vec<Vec<u32>>,
    /// Tokens that all of them begin with, at least one.
    pub shared: usize,
    /// The logarithms to compute, in order.
    pub wanted: Vec<Wanted>,
}

impl Branches {
    /// `texts` of the task at `place`, with nothing wanted yet.
    ///
    /// # Errors
    /// Texts that do not begin with the same token, and texts one of which is the beginning of all others: the
    /// reference program would read where nothing is.
    pub fn new(tokenizer: &Tokenizer, place: String, texts: &[String]) -> Result<Branches, TaskError> {
        let tokens = texts.iter().map(|text| encode(tokenizer, text));
        let texts: Vec<Vec<u32>> = tokens.collect::<Result<_, _>>()?;
        let shortest = texts.iter().map(Vec::len).min().unwrap_or(0);
        let differs = |at: &usize| texts.iter().any(|text| text[*at] != texts[0][*at]);
        let shared = (0..shortest).find(differs).unwrap_or(shortest);
        if shared == 0 {
            return Err(malformed(
                place,
                "the choices do not begin with the same token, so that nothing predicts where they part; the model's vocabulary puts no token before a text",
            ));
        }
        if shared == shortest {
            return Err(malformed(place, "a choice has no token of its own: all others begin with it"));
        }
        Ok(Branches { place, texts, shared, wanted: Vec::new() })
    }

    /// Cells that the texts take: those of the tokens that they share once, and those of the tokens of each alone.
    pub fn cells(&self) -> usize {
        let own = self.texts.iter().map(|text| text.len() - self.shared);
        self.shared + own.sum::<usize>()
    }

    /// Wants all that each text says behind what it shares, token by token.
    pub fn want_all(&mut self) {
        for (text, tokens) in self.texts.iter().enumerate() {
            self.wanted.push(Wanted {
                row: RowOf::Shared,
                token: tokens[self.shared],
                score: TokenScore::OfProbability,
            });
            let rest = (self.shared..tokens.len() - 1).map(|position| Wanted {
                row: RowOf::Text { text, position },
                token: tokens[position + 1],
                score: TokenScore::OfLogit,
            });
            self.wanted.extend(rest);
        }
    }

    /// The first of the wanted logarithms `logs`, text by text, where those of the tokens of each from number `first` on
    /// are wanted.
    pub fn by_text<'l>(&self, first: usize, mut logs: &'l [f32]) -> impl Iterator<Item = &'l [f32]> {
        self.texts.iter().map(move |text| {
            let (own, others) = logs.split_at(text.len() - first);
            logs = others;
            own
        })
    }

    /// How many of the wanted logarithms [`Branches::want_all`] has made belong to each text, in order.
    pub fn own_lengths(&self) -> impl Iterator<Item = usize> {
        self.texts.iter().map(|text| text.len() - self.shared)
    }
}

/// The tokens of a text that begins a sequence.
///
/// # Errors
/// The tokenizer's error.
pub fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, TaskError> {
    Ok(tokenizer.encode(text, true, false)?)
}
