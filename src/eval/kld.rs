//! Kullback-Leibler divergence of a model from a base model's saved log-probabilities.

use std::io::Read;

use super::base_file::{BaseReader, BaseRow};
use super::score::{Scorer, max_and_sum};
use super::{EvalError, Evaluator, Observer};
use crate::math::{exp, expf, log};

/// A mean or another estimate with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertain {
    /// The estimate.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

impl Uncertain {
    /// e^x of it: a perplexity from its logarithm.
    pub fn exp(self) -> Uncertain {
        let value = exp(self.value);
        Uncertain { value, error: value * self.error }
    }
}

/// Scores of one position.
struct Point {
    nll: f32,
    nll_base: f32,
    kld: f64,
    p_diff: f32,
    same_top: bool,
}

impl Point {
    /// The arithmetic is `f32`, the sum of the divergence `f64`; tokens 16 nats below are left out.
    fn new(logits: &[f32], base: &BaseRow<'_>, next: u32) -> Point {
        let (max, sum) = max_and_sum(logits);
        let log_sum = log(sum) as f32;
        let base = base.log_probs(logits.len());
        let next = next as usize;
        let nll = max + log_sum - logits[next];
        let nll_base = -base[next];
        let shift = max + log_sum;
        let mut kld = 0f64;
        for (&b, &l) in base.iter().zip(logits) {
            if b > -16.0 {
                kld += f64::from(expf(b) * (b - l + shift));
            }
        }
        Point {
            nll,
            nll_base,
            kld,
            p_diff: expf(-nll) - expf(-nll_base),
            same_top: first_max(logits) == first_max(&base),
        }
    }
}

/// Index of the first of the largest values.
fn first_max(v: &[f32]) -> usize {
    (1..v.len()).fold(0, |best, i| if v[i] > v[best] { i } else { best })
}

/// Sums over positions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) nll: f64,
    pub(super) nll2: f64,
    pub(super) nll_base: f64,
    pub(super) nll_base2: f64,
    pub(super) nll_nll_base: f64,
    pub(super) kld: f64,
    pub(super) kld2: f64,
    pub(super) p_diff: f64,
    pub(super) p_diff2: f64,
    pub(super) p_diff4: f64,
    pub(super) same_top: usize,
    pub(super) count: usize,
}

impl Sums {
    fn push(&mut self, p: &Point) {
        self.nll += f64::from(p.nll);
        self.nll2 += f64::from(p.nll * p.nll);
        self.nll_base += f64::from(p.nll_base);
        self.nll_base2 += f64::from(p.nll_base * p.nll_base);
        self.nll_nll_base += f64::from(p.nll * p.nll_base);
        self.kld += p.kld;
        self.kld2 += p.kld * p.kld;
        self.p_diff += f64::from(p.p_diff);
        let square = f64::from(p.p_diff * p.p_diff);
        self.p_diff2 += square;
        self.p_diff4 += square * square;
        self.same_top += usize::from(p.same_top);
        self.count += 1;
    }

    fn add(&mut self, o: &Sums) {
        self.nll += o.nll;
        self.nll2 += o.nll2;
        self.nll_base += o.nll_base;
        self.nll_base2 += o.nll_base2;
        self.nll_nll_base += o.nll_nll_base;
        self.kld += o.kld;
        self.kld2 += o.kld2;
        self.p_diff += o.p_diff;
        self.p_diff2 += o.p_diff2;
        self.p_diff4 += o.p_diff4;
        self.same_top += o.same_top;
        self.count += o.count;
    }

    fn mean(&self, sum: f64, squares: f64) -> Uncertain {
        let n = self.count as f64;
        let value = sum / n;
        let variance = squares / n - value * value;
        let error = if variance > 0.0 && self.count > 10 { (variance / (n - 1.0)).sqrt() } else { 0.0 };
        Uncertain { value, error }
    }
}

/// Statistics of a comparison so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Divergence {
    pub(super) sums: Sums,
    pub(super) kld: Vec<f32>,
    pub(super) p_diff: Vec<f32>,
}

impl Divergence {
    /// Adds the statistics of the next chunk.
    pub fn add(&mut self, chunk: &Divergence) {
        self.sums.add(&chunk.sums);
        self.kld.extend_from_slice(&chunk.kld);
        self.p_diff.extend_from_slice(&chunk.p_diff);
    }

    /// Scored positions.
    pub fn count(&self) -> usize {
        self.sums.count
    }

    /// ln of the model's perplexity.
    pub fn log_ppl(&self) -> Uncertain {
        self.sums.mean(self.sums.nll, self.sums.nll2)
    }

    /// ln of the base model's perplexity.
    pub fn log_ppl_base(&self) -> Uncertain {
        self.sums.mean(self.sums.nll_base, self.sums.nll_base2)
    }

    /// Covariance of the two means.
    pub fn covariance(&self) -> f64 {
        let s = &self.sums;
        if s.count < 10 {
            return 0.0;
        }
        let n = s.count as f64;
        (s.nll_nll_base / n - (s.nll / n) * (s.nll_base / n)) / (n - 1.0)
    }

    /// ln(PPL(Q)/PPL(base)).
    pub fn log_ratio(&self) -> Uncertain {
        let (q, base) = (self.log_ppl(), self.log_ppl_base());
        let variance = q.error * q.error + base.error * base.error - 2.0 * self.covariance();
        Uncertain { value: q.value - base.value, error: variance.sqrt() }
    }

    /// Mean divergence in nats.
    pub fn kld(&self) -> Uncertain {
        self.sums.mean(self.sums.kld, self.sums.kld2)
    }

    /// Mean change of the probability of the text's token.
    pub fn p_diff(&self) -> Uncertain {
        self.sums.mean(self.sums.p_diff, self.sums.p_diff2)
    }

    /// Root mean square of that change.
    pub fn p_diff_rms(&self) -> Uncertain {
        let square = self.sums.mean(self.sums.p_diff2, self.sums.p_diff4);
        let value = square.value.sqrt();
        Uncertain { value, error: 0.5 / value * square.error }
    }

    /// Share of positions where both models have the same first choice.
    pub fn same_top(&self) -> Uncertain {
        let n = self.sums.count as f64;
        let value = self.sums.same_top as f64 / n;
        Uncertain { value, error: (value * (1.0 - value) / (n - 1.0)).sqrt() }
    }

    /// The divergences of all positions, ascending.
    pub fn sorted_kld(&self) -> Sorted {
        Sorted::new(&self.kld)
    }

    /// The probability changes of all positions, ascending.
    pub fn sorted_p_diff(&self) -> Sorted {
        Sorted::new(&self.p_diff)
    }
}

/// Ascending values with percentiles in `f32`.
pub struct Sorted(Vec<f32>);

impl Sorted {
    fn new(values: &[f32]) -> Sorted {
        let mut values = values.to_vec();
        values.sort_by(f32::total_cmp);
        Sorted(values)
    }

    /// Smallest value.
    pub fn min(&self) -> f32 {
        self.0[0]
    }

    /// Largest value.
    pub fn max(&self) -> f32 {
        self.0[self.0.len() - 1]
    }

    /// Median.
    pub fn median(&self) -> f32 {
        let n = self.0.len();
        if n.is_multiple_of(2) { 0.5 * (self.0[n / 2] + self.0[n / 2 - 1]) } else { self.0[n / 2] }
    }

    /// Linear interpolation between the two neighbours of `fraction` (between 0 and 1).
    pub fn percentile(&self, fraction: f32) -> f32 {
        let last = self.0.len() - 1;
        let at = fraction * last as f32;
        let below = (at as usize).min(last);
        let share = at - below as f32;
        (1.0 - share) * self.0[below] + share * self.0[(below + 1).min(last)]
    }
}

/// Compares `model` with the base file on the file's own text; `observe` hears the statistics after
/// each chunk.
///
/// # Errors
/// As [`by_chunk`].
pub fn divergence<R: Read + Send + Sync>(
    model: &mut dyn Evaluator,
    base: &mut BaseReader<R>,
    observe: Observer<'_, Divergence>,
) -> Result<Divergence, EvalError> {
    let mut total = Divergence::default();
    by_chunk(model, base, &mut |done, chunk| {
        total.add(chunk);
        observe(done, &total)
    })?;
    Ok(total)
}

/// The same; `observe` hears the statistics of each chunk, which [`Divergence::add`] makes into those of all, in the
/// order of the text.
///
/// # Errors
/// Non-finite logits, a file that cannot be read to the end, an observer that stops the run.
pub fn by_chunk<R: Read + Send + Sync>(
    model: &mut dyn Evaluator,
    base: &mut BaseReader<R>,
    observe: Observer<'_, Divergence>,
) -> Result<(), EvalError> {
    let chunks = base.chunks().clone();
    chunks.score(model, &mut Comparison { base, chunk: Divergence::default(), observe })
}

/// Compares position by position with the rows of the base file.
struct Comparison<'a, R: Read> {
    base: &'a mut BaseReader<R>,
    chunk: Divergence,
    observe: Observer<'a, Divergence>,
}

impl<R: Read + Send + Sync> Scorer for Comparison<'_, R> {
    type Shared = BaseReader<R>;
    type Score = Point;

    fn begin(&mut self) -> Result<(), EvalError> {
        self.chunk = Divergence::default();
        self.base.next_chunk()
    }

    fn shared(&self) -> &BaseReader<R> {
        self.base
    }

    fn score(base: &BaseReader<R>, i: usize, logits: &[f32], next: u32) -> Point {
        Point::new(logits, &base.row(i), next)
    }

    fn take(&mut self, point: Point) -> Result<(), EvalError> {
        self.chunk.sums.push(&point);
        self.chunk.kld.push(point.kld as f32);
        self.chunk.p_diff.push(point.p_diff);
        Ok(())
    }

    fn end(&mut self, done: usize) -> Result<(), EvalError> {
        (self.observe)(done, &self.chunk).map_err(|_| EvalError::Interrupted)
    }
}

/// ln of the base model's perplexity, from its file alone: the value of [`Divergence::log_ppl_base`] after a comparison
/// with any model. `observe` hears how many positions are read after each chunk.
///
/// # Errors
/// A file that cannot be read to the end, an observer that stops the run.
pub fn log_ppl_base<R: Read>(base: &mut BaseReader<R>, observe: Observer<'_, usize>) -> Result<Uncertain, EvalError> {
    let chunks = base.chunks().clone();
    let mut total = Sums::default();
    for index in 0..chunks.count() {
        base.next_chunk()?;
        let scored = &chunks.tokens()[index * chunks.n_ctx()..][chunks.first() + 1..];
        let mut sums = Sums::default();
        for (i, &next) in scored[..chunks.scored()].iter().enumerate() {
            let nll_base = -base.row(i).log_prob(next as usize);
            sums.nll_base += f64::from(nll_base);
            sums.nll_base2 += f64::from(nll_base * nll_base);
            sums.count += 1;
        }
        total.add(&sums);
        observe(index + 1, &total.count).map_err(|_| EvalError::Interrupted)?;
    }
    Ok(total.mean(total.nll_base, total.nll_base2))
}
