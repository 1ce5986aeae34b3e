//! Questions with choices by the likelihood of what follows them, as lm-evaluation-harness scores them (ARC, PIQA,
//! BoolQ, MMLU, LAMBADA): the logarithms of the probabilities of a choice's tokens behind the question are added up.
//!
//! The likeliest choice is that of the largest sum (`acc`) or of the largest sum for each byte of the choice
//! (byte-normalised, `acc_norm`). A question with one choice asks whether greedy sampling would write it (LAMBADA).

use super::branches::{Branches, RowOf, Wanted, encode};
use super::log_prob::TokenScore;
use super::run::{Cells, Subject, TaskOptions, run};
use super::{Accuracy, TaskError, TaskObserver, likeliest, malformed};
use crate::math::exp;

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where it stands, for errors: "line 3".
    pub place: String,
    /// Text before the choices, whose last white space belongs to them.
    pub context: String,
    /// Texts that may follow it, white space before it included; at least one.
    pub choices: Vec<String>,
    /// The right choice.
    pub right: usize,
}

/// Result of all questions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scored {
    /// Questions whose likeliest choice is right. A question with one choice is right if each of its tokens is the
    /// likeliest.
    pub accuracy: Accuracy,
    /// Questions whose choice with the largest sum for each byte is right.
    pub normalised: Accuracy,
    /// Sum of the right choices' logarithms.
    pub log_likelihood: f64,
}

impl Scored {
    /// e to the mean negative log-likelihood of the right choices, each counted once.
    pub fn perplexity(&self) -> f64 {
        exp(-self.log_likelihood / self.accuracy.done as f64)
    }
}

/// The model's view of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Per choice, the sum of its tokens' logarithms.
    pub sums: Vec<f64>,
    /// True if each token of the only choice is the likeliest one.
    pub greedy: bool,
}

impl Answer {
    /// Adds up the logarithms that [`prepared`] wants; `before` tokens stand before the choices.
    fn new(before: usize, branches: &Branches, logs: &[f32]) -> Answer {
        let sum = |own: &[f32]| own.iter().map(|&log| f64::from(log)).sum();
        let sums: Vec<f64> = branches.by_text(before, logs).map(sum).collect();
        let mut flags = branches.wanted.iter().zip(logs).filter(|(wanted, _)| wanted.score == TokenScore::IsLikeliest);
        Answer { sums, greedy: flags.all(|(_, &likeliest)| likeliest == 1.0) }
    }

    /// The choice of the largest sum, each divided by what `divisor` says of it; the first of equals.
    fn likeliest(&self, divisor: impl Fn(usize) -> f64) -> usize {
        likeliest(self.sums.iter().enumerate().map(|(i, sum)| sum / divisor(i)))
    }
}

/// Scores the questions in their order; `observe` hears of each.
///
/// # Errors
/// A choice without a token or byte of its own, a question without room, what the model says.
pub fn score(
    subject: Subject<'_>,
    options: &TaskOptions,
    questions: &[Question],
    observe: TaskObserver<'_, (Scored, Answer)>,
) -> Result<Scored, TaskError> {
    let prepared = questions.iter().map(|question| prepared(subject, question));
    let (branches, before): (Vec<Branches>, Vec<usize>) = prepared.collect::<Result<_, _>>()?;
    let mut scored = Scored::default();
    run(subject, options, options.parallel, Cells::Own, &branches, &mut |task, logs| {
        let question = &questions[task];
        let answer = Answer::new(before[task], &branches[task], logs);
        let bytes = |choice: usize| question.choices[choice].trim_start().len() as f64;
        if question.choices.len() == 1 {
            scored.accuracy.push(answer.greedy);
            scored.normalised.push(answer.greedy);
        } else {
            scored.accuracy.push(answer.likeliest(|_| 1.0) == question.right);
            scored.normalised.push(answer.likeliest(bytes) == question.right);
        }
        scored.log_likelihood += answer.sums[question.right];
        observe(&(scored, answer)).map_err(|_| TaskError::Interrupted)
    })?;
    Ok(scored)
}

/// A question as the model gets it, and how many tokens stand before its choices. Wanted are the logarithms of each
/// choice's tokens, choice by choice, and of an only choice then which of them are the likeliest tokens.
fn prepared(subject: Subject<'_>, question: &Question) -> Result<(Branches, usize), TaskError> {
    let wrong = |what: &str| malformed(&question.place, what);
    let context = question.context.trim_end();
    let between = &question.context[context.len()..];
    let before = encode(subject.tokenizer, context)?.len();
    if before == 0 {
        return Err(wrong("nothing stands before the choices, and the model's vocabulary puts no token before a text"));
    }
    let mut texts = Vec::with_capacity(question.choices.len());
    for choice in &question.choices {
        if choice.trim_start().is_empty() {
            return Err(wrong("a choice is empty"));
        }
        let text = encode(subject.tokenizer, &format!("{context}{between}{choice}"))?;
        if text.len() <= before {
            return Err(wrong("a choice has no token of its own behind the question"));
        }
        texts.push(text);
    }
    let differs = |&at: &usize| texts.iter().any(|text| text[at] != texts[0][at]);
    let shared = (0..before).find(differs).unwrap_or(before);
    if shared == 0 {
        return Err(wrong("the choices do not begin with the same token"));
    }
    let mut wanted = Vec::new();
    for score in [TokenScore::Exact, TokenScore::IsLikeliest] {
        if score == TokenScore::IsLikeliest && texts.len() > 1 {
            break;
        }
        for (text, tokens) in texts.iter().enumerate() {
            wanted.extend((before..tokens.len()).map(|at| {
                let row = if at == shared { RowOf::Shared } else { RowOf::Text { text, position: at - 1 } };
                Wanted { row, token: tokens[at], score }
            }));
        }
    }
    Ok((Branches { place: question.place.clone(), texts, shared, wanted }, before))
}
