//! Perplexity: e to the mean negative log-likelihood of the tokens, llama-perplexity's protocol.

use std::io::Write;

use super::base_file::{BaseWriter, QuantizedRow};
use super::{Chunks, EvalError, Evaluator, Observer, max_and_sum};
use crate::math::{exp, log};

/// Sums over the scored tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Sum of the negative log-likelihoods, in nats.
    pub nll: f64,
    /// Sum of their squares.
    pub nll2: f64,
    /// Number of scored tokens.
    pub count: usize,
}

impl Estimate {
    /// Mean negative log-likelihood.
    pub fn mean(&self) -> f64 {
        self.nll / self.count as f64
    }

    /// Perplexity.
    pub fn ppl(&self) -> f64 {
        exp(self.mean())
    }

    /// Standard error of [`Estimate::mean`]; 0 where the variance is not positive.
    pub fn mean_error(&self) -> f64 {
        let mean = self.mean();
        let variance = self.nll2 / self.count as f64 - mean * mean;
        if variance > 0.0 {
            (variance / (self.count as f64 - 1.0)).sqrt()
        } else {
            0.0
        }
    }

    /// Standard error of the perplexity.
    pub fn ppl_error(&self) -> f64 {
        self.mean_error() * self.ppl()
    }
}

/// Negative log-likelihood of `next`: the difference in `f32`, the logarithm in `f64`.
pub(super) fn nll(logits: &[f32], next: u32) -> f64 {
    let (max, sum) = max_and_sum(logits);
    -(f64::from(logits[next as usize] - max) - log(sum))
}

/// Evaluates all chunks; `observe` hears the running estimate after each.
///
/// With `base`, the log-probabilities of every scored position go there too. The likelihoods are then
/// the `f32` ones of that file's format, as they are in the reference, so the last digits may differ.
///
/// # Errors
/// Non-finite logits, a failing write, an observer that stops the run.
pub fn perplexity<W: Write + Send>(
    model: &mut dyn Evaluator,
    chunks: &Chunks,
    n_batch: usize,
    mut base: Option<&mut BaseWriter<W>>,
    observe: Observer<'_, Estimate>,
) -> Result<Estimate, EvalError> {
    let mut total = Estimate::default();
    let quantize = base.is_some();
    for index in 0..chunks.count() {
        let mut sums = Estimate::default();
        let score = |_: usize, logits: &[f32], next: u32| {
            if quantize {
                let row = QuantizedRow::new(logits, next);
                (row.nll, Some(row))
            } else {
                (nll(logits, next), None)
            }
        };
        chunks.score(model, index, n_batch, &score, &mut |(v, row)| {
            sums.nll += v;
            sums.nll2 += v * v;
            sums.count += 1;
            match (&mut base, row) {
                (Some(base), Some(row)) => base.row(&row).map_err(EvalError::Write),
                _ => Ok(()),
            }
        })?;
        total.nll += sums.nll;
        total.nll2 += sums.nll2;
        total.count += sums.count;
        observe(index + 1, &total).map_err(|_| EvalError::Interrupted)?;
    }
    Ok(total)
}
