//! Perplexity: e to the mean negative log-likelihood of the tokens, llama-perplexity's protocol.

use std::io::Write;

use super::base_file::{BaseWriter, QuantizedRow};
use super::score::Scorer;
use super::tasks::rounded_log_prob;
use super::{Chunks, EvalError, Evaluator, LogProbabilities, Observer, Scored};
use crate::math::exp;

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
    /// Adds a negative log-likelihood.
    pub(super) fn push(&mut self, nll: f64) {
        self.nll += nll;
        self.nll2 += nll * nll;
        self.count += 1;
    }

    /// Adds the sums of the next chunk.
    pub fn add(&mut self, chunk: &Estimate) {
        self.nll += chunk.nll;
        self.nll2 += chunk.nll2;
        self.count += chunk.count;
    }

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
        if variance > 0.0 { (variance / (self.count as f64 - 1.0)).sqrt() } else { 0.0 }
    }

    /// Standard error of the perplexity.
    pub fn ppl_error(&self) -> f64 {
        self.mean_error() * self.ppl()
    }
}

/// Negative log-likelihood of `next`.
pub(super) fn nll(logits: &[f32], next: u32) -> f64 {
    -LogProbabilities::new(logits).of(next)
}

/// Evaluates all chunks; `observe` hears the running estimate after each.
///
/// # Errors
/// As [`by_chunk`].
pub fn perplexity<W: Write + Send>(
    model: &mut dyn Evaluator,
    chunks: &Chunks,
    base: Option<&mut BaseWriter<W>>,
    observe: Observer<'_, Estimate>,
) -> Result<Estimate, EvalError> {
    let mut total = Estimate::default();
    by_chunk(model, chunks, base, &mut |done, chunk| {
        total.add(chunk);
        observe(done, &total)
    })?;
    Ok(total)
}

/// Evaluates all chunks; `observe` hears the sums of each, which [`Estimate::add`] makes into an estimate of all, in the
/// order of the text.
///
/// With `base`, the log-probabilities of every scored position go there too. The likelihoods are then
/// the `f32` ones of that file's format, as they are in the reference, so the last digits may differ. Those of
/// [strided](Chunks::strided) chunks are logarithms of probabilities in `f32`, as they are there.
///
/// # Errors
/// Non-finite logits, a failing write, an observer that stops the run.
pub fn by_chunk<W: Write + Send>(
    model: &mut dyn Evaluator,
    chunks: &Chunks,
    base: Option<&mut BaseWriter<W>>,
    observe: Observer<'_, Estimate>,
) -> Result<(), EvalError> {
    let mut likelihoods = Likelihoods {
        rounding: match (&base, chunks.scored) {
            (Some(_), _) => LikelihoodRounding::Quantized,
            (None, Scored::Last(_)) => LikelihoodRounding::Rounded,
            (None, Scored::SecondHalf | Scored::All) => LikelihoodRounding::Exact,
        },
        base,
        chunk: Estimate::default(),
        observe,
    };
    chunks.score(model, &mut likelihoods)
}

/// Rounding of the likelihood of a token.
enum LikelihoodRounding {
    /// See [`nll`].
    Exact,
    /// As a base file stores log-probabilities.
    Quantized,
    /// See [`rounded_log_prob`].
    Rounded,
}

/// Adds up likelihoods and writes the base file.
struct Likelihoods<'a, W: Write> {
    rounding: LikelihoodRounding,
    base: Option<&'a mut BaseWriter<W>>,
    chunk: Estimate,
    observe: Observer<'a, Estimate>,
}

impl<W: Write + Send> Scorer for Likelihoods<'_, W> {
    type Shared = LikelihoodRounding;
    type Score = (f64, Option<QuantizedRow>);

    fn begin(&mut self) -> Result<(), EvalError> {
        self.chunk = Estimate::default();
        Ok(())
    }

    fn shared(&self) -> &LikelihoodRounding {
        &self.rounding
    }

    fn score(rounding: &LikelihoodRounding, _: usize, logits: &[f32], next: u32) -> Self::Score {
        match rounding {
            LikelihoodRounding::Exact => (nll(logits, next), None),
            LikelihoodRounding::Rounded => (f64::from(-rounded_log_prob(logits, next)), None),
            LikelihoodRounding::Quantized => {
                let row = QuantizedRow::new(logits, next);
                (row.nll, Some(row))
            }
        }
    }

    fn take(&mut self, (v, row): Self::Score) -> Result<(), EvalError> {
        self.chunk.push(v);
        match (&mut self.base, row) {
            (Some(base), Some(row)) => base.row(&row).map_err(EvalError::Write),
            _ => Ok(()),
        }
    }

    fn end(&mut self, done: usize) -> Result<(), EvalError> {
        (self.observe)(done, &self.chunk).map_err(|_| EvalError::Interrupted)
    }
}
