//! The scores of tokens that tasks need: log-probabilities, llama-perplexity's two roundings among them.

use std::cell::OnceCell;

use crate::eval::LogProbabilities;
use crate::math::{expf, logf};

/// Score of a token by its row of logits: a log-probability, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenScore {
    /// The probability is rounded to `f32`, its divisor summed in `f64`; then its logarithm.
    OfProbability,
    /// The logit less the largest less the logarithm of a divisor that is summed in `f32`.
    OfLogit,
    /// The log-probability of [`LogProbabilities`], rounded to `f32` at last.
    Exact,
    /// No logarithm: 1 if no other token is likelier, else 0.
    IsLikeliest,
}

/// One row of logits, of which there is at least one. What its tokens share is computed once.
pub struct Row<'a> {
    logits: &'a [f32],
    max: f32,
    double: OnceCell<f64>,
    log_single: OnceCell<f32>,
    exact: OnceCell<LogProbabilities<'a>>,
}

impl<'a> Row<'a> {
    pub fn new(logits: &'a [f32]) -> Row<'a> {
        Row {
            logits,
            max: logits.iter().fold(f32::NEG_INFINITY, |m, &l| m.max(l)),
            double: OnceCell::new(),
            log_single: OnceCell::new(),
            exact: OnceCell::new(),
        }
    }

    /// The logarithm of the probability of `token`.
    pub fn log_prob(&self, token: u32, score: TokenScore) -> f32 {
        let logit = self.logits[token as usize] - self.max;
        let terms = self.logits.iter().map(|&l| expf(l - self.max));
        match score {
            TokenScore::OfProbability => {
                let sum = self.double.get_or_init(|| terms.map(f64::from).sum());
                logf((f64::from(expf(logit)) / sum) as f32)
            }
            TokenScore::Exact => self.exact.get_or_init(|| LogProbabilities::new(self.logits)).of(token) as f32,
            TokenScore::IsLikeliest => f32::from(u8::from(logit == 0.0)),
            TokenScore::OfLogit => logit - self.log_single.get_or_init(|| logf(terms.sum())),
        }
    }
}
