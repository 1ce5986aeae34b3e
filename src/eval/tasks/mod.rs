//! Tasks with choices: of some texts that begin alike, does a model find the right one most likely?
//!
//! HellaSwag, WinoGrande and multiple choice by llama-perplexity's protocol: its file formats, its random order of
//! tasks, its likelihoods and rounding. Texts of several tasks stand in one context of [`TaskOptions::n_ctx`] cells
//! there, those of a task sharing their beginning. That decides how sums over cells are grouped
//! ([`crate::kv::Placement`]), and so the last digits. [`questions`] are scored by the protocol of
//! lm-evaluation-harness.

pub mod hellaswag;
pub mod multiple_choice;
pub mod questions;
pub mod winogrande;

mod branches;
mod choose;
mod log_prob;
mod run;

pub use run::{Subject, TaskOptions};

use std::error::Error;

use crate::model::WidthError;
use crate::step::StepError;
use crate::tokenizer::TokenizerError;

/// Why tasks cannot be read or scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// Something in the file is not as it has to be.
    #[error("{place}: {what}")]
    Malformed {
        /// The line, or the task and the byte.
        place: String,
        /// The problem.
        what: String,
    },
    /// A file without tasks.
    #[error("there are no tasks in the file")]
    NoTasks,
    /// A task that has more tokens than the context.
    #[error(
        "{place}: the task needs {needed} cells of a context of {n_ctx}; give -c {} or more",
        each(*.needed, *.parallel)
    )]
    TooLong {
        /// Place of the task in its file.
        place: String,
        /// Tokens of its texts, what they share once.
        needed: usize,
        /// Cells for all texts.
        n_ctx: usize,
        /// Texts that share them.
        parallel: usize,
    },
    /// A task that has more choices than texts may stand in the context.
    #[error("{place}: the task has {choices} choices; give -np {choices} or more")]
    TooManyChoices {
        /// Place of the task in its file.
        place: String,
        /// Number of choices.
        choices: usize,
    },
    /// The model computed a NaN or an infinity.
    #[error("{0}: non-finite logits: the model's weights are damaged or overflow")]
    NonFinite(String),
    /// The model does not have the width.
    #[error(transparent)]
    Width(#[from] WidthError),
    /// The text cannot be encoded.
    #[error(transparent)]
    Tokenizer(Box<TokenizerError>),
    /// The model cannot take the tokens.
    #[error(transparent)]
    Step(StepError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<TokenizerError> for TaskError {
    fn from(e: TokenizerError) -> TaskError {
        TaskError::Tokenizer(Box::new(e))
    }
}

impl From<StepError> for TaskError {
    fn from(e: StepError) -> TaskError {
        match e {
            StepError::Cancelled => TaskError::Interrupted,
            e => TaskError::Step(e),
        }
    }
}

/// Cells for each of the texts that share them.
fn each(needed: usize, parallel: usize) -> usize {
    needed.div_ceil(parallel.max(1))
}

/// The logarithm of the probability of a token, both in `f32`.
pub(super) fn rounded_log_prob(logits: &[f32], token: u32) -> f32 {
    log_prob::Row::new(logits).log_prob(token, log_prob::TokenScore::OfProbability)
}

/// The place of the largest score, the first of equals.
fn likeliest(scores: impl Iterator<Item = f64>) -> usize {
    let best = scores.enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(0, |(place, _)| place)
}

/// Something wrong at a place of the file.
fn malformed(place: impl Into<String>, what: impl Into<String>) -> TaskError {
    TaskError::Malformed { place: place.into(), what: what.into() }
}

/// Hears what has been found after every task; `Err` ends the run.
pub type TaskObserver<'a, T> = &'a mut dyn FnMut(&T) -> Result<(), Box<dyn Error + Send + Sync>>;

/// How many tasks are done, and of how many of them the right choice was the most likely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    /// Tasks so far.
    pub done: usize,
    /// Tasks that came out right.
    pub correct: usize,
}

impl Accuracy {
    /// One more task.
    fn push(&mut self, right: bool) {
        self.done += 1;
        self.correct += usize::from(right);
    }

    /// Standard error of [`Accuracy::ratio`]; no number for a single task.
    pub fn error(&self) -> f64 {
        let p = self.ratio();
        (p * (1.0 - p) / (self.done as f64 - 1.0)).sqrt()
    }

    /// Right ones among all.
    pub fn ratio(&self) -> f64 {
        self.correct as f64 / self.done as f64
    }

    /// Wilson's score interval of the ratio at 95 %: its lower and its upper end.
    pub fn interval(&self) -> [f64; 2] {
        const NORMAL: f64 = 1.959_963_984_54;
        let (n, ratio) = (self.done as f64, self.ratio());
        let z = NORMAL * NORMAL / n;
        let half = z * (n * (4.0 * ratio * (1.0 - ratio) + z)).sqrt() / (NORMAL + NORMAL);
        let middle = ratio + z * 0.5;
        [middle - half, middle + half].map(|end| end / (1.0 + z))
    }
}

/// A share of tasks and its standard error, in percent, rounded as llama-perplexity rounds them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Percent.
    pub value: f64,
    /// Its standard error in percent; no number for a single task.
    pub error: f64,
}

impl Share {
    /// `part` of `all`, from `tasks` tasks.
    fn new(part: usize, all: usize, tasks: usize) -> Share {
        let p = part as f32 / all as f32;
        let variance = p * (1.0 - p) / (tasks as f32 - 1.0);
        Share { value: f64::from(100.0 * p), error: f64::from(100.0 * variance.sqrt()) }
    }
}

#[cfg(test)]
mod tests;
