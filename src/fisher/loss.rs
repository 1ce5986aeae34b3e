//! Losses of the logits of a sequence and their gradients: the cross-entropy of a text, and the divergence from another
//! model.

use std::ops::Range;

use rayon::prelude::*;

use crate::exec::gradient::{Gradient, Gradients, Real, Tape};

/// Logits in memory at a time.
const LOGITS: usize = if cfg!(test) { 1 } else { 1 << 25 };

/// Folds the gradients of the loss of predicting `tokens[1..]` into `into`; the loss in nats per token. Tokens must be
/// in the vocabulary, at least two.
///
/// # Errors
/// The loss, where it is not finite. Nothing was folded then.
pub fn add<T: Real>(gradient: &Gradient<T>, tokens: &[u32], into: &mut Gradients<T>) -> Result<f64, f64> {
    let (targets, n_vocab) = (&tokens[1..], gradient.n_vocab());
    let weight = T::of(1.0 / targets.len() as f64);
    // nothing is predicted from the last token
    fold(gradient, tokens, targets.len(), into, |rows, logits| {
        let rows = logits.par_chunks_exact_mut(n_vocab).zip(&targets[rows]);
        rows.map(|(row, &target)| score(row, target as usize, weight)).collect()
    })
}

/// Folds the gradients of the mean Kullback-Leibler divergence from `reference` at all positions of `tokens` into
/// `into`; the divergence in nats. Both have the same vocabulary, which the tokens are of.
///
/// # Errors
/// The divergence, where it is not finite. Nothing was folded then.
pub fn diverge<T: Real>(
    gradient: &Gradient<T>,
    reference: &Gradient<T>,
    tokens: &[u32],
    into: &mut Gradients<T>,
) -> Result<f64, f64> {
    let wanted = reference.forward(tokens);
    let weight = T::of(1.0 / tokens.len() as f64);
    fold(gradient, tokens, tokens.len(), into, |rows, logits| {
        divergences(&wanted.logits(rows), logits, gradient.n_vocab(), weight)
    })
}

/// The mean Kullback-Leibler divergence from `reference` at all positions of `tokens`, in nats.
pub fn divergence<T: Real>(gradient: &Gradient<T>, reference: &Gradient<T>, tokens: &[u32]) -> f64 {
    let (wanted, tape) = (reference.forward(tokens), gradient.forward(tokens));
    let n_vocab = gradient.n_vocab();
    let each = parts(tokens.len(), n_vocab)
        .flat_map(|rows| divergences(&wanted.logits(rows.clone()), &mut tape.logits(rows), n_vocab, T::default()));
    each.sum::<f64>() / tokens.len() as f64
}

/// Positions whose logits are in memory together, one range after the other.
fn parts(positions: usize, n_vocab: usize) -> impl Iterator<Item = Range<usize>> {
    let together = (LOGITS / n_vocab).clamp(16, positions.max(16));
    (0..positions).step_by(together).map(move |from| from..(from + together).min(positions))
}

/// Folds the gradients of the mean of the losses of the first `scored` positions into `into`; the mean. `score` makes
/// losses of the logits of some positions and leaves the gradients of the mean in their place.
fn fold<T: Real>(
    gradient: &Gradient<T>,
    tokens: &[u32],
    scored: usize,
    into: &mut Gradients<T>,
    score: impl Fn(Range<usize>, &mut [T]) -> Vec<f64>,
) -> Result<f64, f64> {
    let tape: Tape<'_, T> = gradient.forward(tokens);
    let (mut losses, mut stream) = (Vec::with_capacity(scored), Vec::new());
    for rows in parts(scored, gradient.n_vocab()) {
        stream.append(&mut tape.head(rows.clone(), |logits| losses.append(&mut score(rows, logits))));
    }
    stream.resize(stream.len() / scored * tokens.len(), T::default());
    let loss = losses.iter().sum::<f64>() / scored as f64;
    if !loss.is_finite() {
        return Err(loss);
    }
    tape.backward(stream, into);
    Ok(loss)
}

/// The loss of one position; its logits become their gradients. The sum of exponentials is taken in
/// `f64` in order.
fn score<T: Real>(row: &mut [T], target: usize, weight: T) -> f64 {
    let of_target = row[target];
    let (max, sum) = exponentials(row);
    let of_target = (of_target - max).wide();
    let inverse = T::of(1.0 / sum);
    for (i, v) in row.iter_mut().enumerate() {
        let p = *v * inverse;
        *v = (if i == target { p - T::of(1.0) } else { p }) * weight;
    }
    crate::math::log(sum) - of_target
}

/// The divergences of some positions from the logits `wanted`; the logits become their gradients.
fn divergences<T: Real>(wanted: &[T], logits: &mut [T], n_vocab: usize, weight: T) -> Vec<f64> {
    let rows = logits.par_chunks_exact_mut(n_vocab).zip(wanted.par_chunks_exact(n_vocab));
    rows.map(|(row, wanted)| divergence_of(wanted, row, weight)).collect()
}

/// The divergence of one position, `sum p (log p - log q)`, with `p` from the logits `wanted`. All sums are taken in
/// `f64` in order.
fn divergence_of<T: Real>(wanted: &[T], row: &mut [T], weight: T) -> f64 {
    let mut p = wanted.to_vec();
    let (max_p, sum_p) = exponentials(&mut p);
    // The logarithm of p / q is that of the exponentials' quotient, and a constant.
    let (max, apart) = (row.iter().copied().fold(row[0], larger), wanted.iter().zip(&*row));
    let apart: f64 = apart.zip(&p).fold(0.0, |s, ((w, v), p)| s + p.wide() * ((*w - max_p).wide() - (*v - max).wide()));
    let (_, sum) = exponentials(row);
    let (inverse_p, inverse) = (T::of(1.0 / sum_p), T::of(1.0 / sum));
    row.iter_mut().zip(p).for_each(|(v, p)| *v = (*v * inverse - p * inverse_p) * weight);
    apart / sum_p - crate::math::log(sum_p) + crate::math::log(sum)
}

fn larger<T: Real>(m: T, v: T) -> T {
    if v > m { v } else { m }
}

/// Makes logits `e^(x - max)`; the largest logit, and the sum, which is taken in `f64` in order.
fn exponentials<T: Real>(row: &mut [T]) -> (T, f64) {
    let max = row.iter().copied().fold(row[0], larger);
    row.iter_mut().for_each(|v| *v = (*v - max).exp());
    (max, row.iter().fold(0.0, |s, v| s + v.wide()))
}
