//! The causal language-model loss and its gradient: mean cross-entropy over the predicted tokens.

use rayon::prelude::*;

use crate::exec::gradient::{Gradient, Gradients, Real};

/// Logits in memory at a time.
const LOGITS: usize = if cfg!(test) { 1 } else { 1 << 25 };

/// Folds the gradients of the loss of predicting `tokens[1..]` into `into`; the loss in nats per token. Tokens must be
/// in the vocabulary, at least two.
///
/// # Errors
/// The loss, where it is not finite. Nothing was folded then.
pub fn add<T: Real>(gradient: &Gradient<T>, tokens: &[u32], into: &mut Gradients<T>) -> Result<f64, f64> {
    let tape = gradient.forward(tokens);
    let (targets, n_vocab) = (&tokens[1..], gradient.n_vocab());
    let together = (LOGITS / n_vocab).clamp(16, targets.len().max(16));
    let weight = T::of(1.0 / targets.len() as f64);
    let (mut losses, mut stream) = (Vec::with_capacity(targets.len()), Vec::new());
    for (part, targets) in targets.chunks(together).enumerate() {
        let from = part * together;
        stream.append(&mut tape.head(from..from + targets.len(), |logits| {
            let rows = logits.par_chunks_exact_mut(n_vocab).zip(targets);
            let scored = rows.map(|(row, &target)| score(row, target as usize, weight));
            losses.append(&mut scored.collect());
        }));
    }
    // nothing is predicted from the last token
    stream.resize(stream.len() / targets.len() * tokens.len(), T::default());
    let loss = losses.iter().sum::<f64>() / targets.len() as f64;
    if !loss.is_finite() {
        return Err(loss);
    }
    tape.backward(stream, into);
    Ok(loss)
}

/// The loss of one position; its logits become their gradients. The sum of exponentials is taken in
/// `f64` in order.
fn score<T: Real>(row: &mut [T], target: usize, weight: T) -> f64 {
    let max = row.iter().copied().fold(row[0], |m, v| if v > m { v } else { m });
    let of_target = (row[target] - max).wide();
    row.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum = row.iter().fold(0.0, |s, v| s + v.wide());
    let inverse = T::of(1.0 / sum);
    for (i, v) in row.iter_mut().enumerate() {
        let p = *v * inverse;
        *v = (if i == target { p - T::of(1.0) } else { p }) * weight;
    }
    crate::math::log(sum) - of_target
}
