//! The causal language-model loss and its gradient: mean cross-entropy over the predicted tokens.

use rayon::prelude::*;

use super::ops::Norm;
use super::product::{Packed, Place, View, multiply};
use super::real::Real;
use crate::kernels::Isa;

/// Rows of the output matrix at a time; few in the tests, whose models are small.
const ROWS: usize = if cfg!(test) { 10 } else { 4096 };

/// Logits in memory at a time.
const LOGITS: usize = if cfg!(test) { 1 } else { 1 << 25 };

/// What turns the residual stream into logits.
pub struct Head<'a, T> {
    /// Norm before the projection.
    pub norm: &'a Norm<T>,
    /// `[n_vocab][n_embd]`.
    pub weight: &'a [T],
    /// One per token of the vocabulary, or empty.
    pub bias: &'a [T],
    /// `cap * tanh(logits / cap)`, where the model asks for it.
    pub softcap: Option<f64>,
    /// Instruction set; changes no bit.
    pub isa: Isa,
}

impl<T: Real> Head<'_, T> {
    /// The loss of predicting `tokens[1..]` from `x`, `[tokens][n_embd]`, in nats per token, and its
    /// gradient at `x`. Tokens must be in the vocabulary.
    pub fn loss(&self, x: &[T], tokens: &[u32]) -> (f64, Vec<T>) {
        let n = self.norm.weight.len();
        let targets = &tokens[1..];
        let n_vocab = self.weight.len() / n;
        let u = self.norm.forward(x);
        let mut du = vec![T::default(); x.len()];
        let together = (LOGITS / n_vocab).clamp(16, targets.len().max(16));
        let mut losses = Vec::with_capacity(targets.len());
        for (part, targets_here) in targets.chunks(together).enumerate() {
            let first = part * together * n;
            let here = first..first + targets_here.len() * n;
            let mut logits = self.logits(&u[here.clone()], n_vocab);
            let weight = T::of(1.0 / targets.len() as f64);
            let rows = logits.par_chunks_exact_mut(n_vocab).zip(targets_here);
            let scored = rows.map(|(row, &target)| self.score(row, target as usize, weight));
            losses.append(&mut scored.collect());
            for start in (0..n_vocab).step_by(ROWS) {
                let end = (start + ROWS).min(n_vocab);
                let rows = Packed::new(View::new(&self.weight[start * n..end * n], n));
                let d = View::new(&logits, n_vocab).columns(start..end);
                let place = Place { add: true, ..Place::whole(n) };
                multiply(self.isa, d, &rows, &mut du[here.clone()], place);
            }
        }
        self.norm.backward(x, &mut du);
        (losses.iter().sum::<f64>() / targets.len() as f64, du)
    }

    fn logits(&self, u: &[T], n_vocab: usize) -> Vec<T> {
        let n = self.norm.weight.len();
        let mut logits = vec![T::default(); u.len() / n * n_vocab];
        for start in (0..n_vocab).step_by(ROWS) {
            let end = (start + ROWS).min(n_vocab);
            let rows = View::new(&self.weight[start * n..end * n], n);
            let place = Place { stride: n_vocab, offset: start, add: false };
            let packed = Packed::new(rows.transposed());
            multiply(self.isa, View::new(u, n), &packed, &mut logits, place);
        }
        if !self.bias.is_empty() {
            logits.par_chunks_exact_mut(n_vocab).for_each(|row| super::ops::add(row, self.bias));
        }
        logits
    }

    /// The loss of one position; its logits become their gradients. The sum of exponentials is taken in
    /// `f64` in order.
    fn score(&self, row: &mut [T], target: usize, weight: T) -> f64 {
        let one = T::of(1.0);
        let capped: Option<Vec<T>> = self.softcap.map(|cap| {
            let (cap, inverse) = (T::of(cap), T::of(1.0 / cap));
            let slope = |v: &mut T| {
                let t = (*v * inverse).tanh();
                *v = t * cap;
                one - t * t
            };
            row.iter_mut().map(slope).collect()
        });
        let max = row.iter().copied().fold(row[0], |m, v| if v > m { v } else { m });
        let of_target = (row[target] - max).wide();
        row.iter_mut().for_each(|v| *v = (*v - max).exp());
        let sum = row.iter().fold(0.0, |s, v| s + v.wide());
        let inverse = T::of(1.0 / sum);
        for (i, v) in row.iter_mut().enumerate() {
            let p = *v * inverse;
            *v = (if i == target { p - one } else { p }) * weight;
        }
        if let Some(slopes) = capped {
            row.iter_mut().zip(slopes).for_each(|(v, s)| *v *= s);
        }
        crate::math::log(sum) - of_target
    }
}
