//! Mixtures of experts: the choice is held constant, its weights and everything else have derivatives.

use std::ops::Range;

use rayon::prelude::*;

use super::elements::{dot, head_gate, sigmoid};
use super::real::Real;
use crate::ops::activation::HeadGate;
use crate::ops::experts::{Choosing, Gating, LEAST_SUM, by_expert};

/// The experts of every token, their weights, and the order of rows that are grouped by expert.
pub struct Choice<T> {
    /// Experts of a token.
    used: usize,
    /// The experts, `[tokens][used]`.
    pub experts: Vec<usize>,
    /// Their weights.
    weights: Vec<T>,
    /// The place in the two of each row.
    places: Vec<usize>,
    /// The rows of each expert.
    pub rows: Vec<Range<usize>>,
}

/// `e^x` over the sum of all.
fn soft_max<T: Real>(x: &mut [T]) {
    let max = x.iter().copied().fold(x[0], |m, v| if v > m { v } else { m });
    x.iter_mut().for_each(|v| *v = (*v - max).exp());
    let inverse = T::of(1.0 / x.iter().fold(0.0, |s, v| s + v.wide()));
    x.iter_mut().for_each(|v| *v *= inverse);
}

/// The gradient before a soft-max, from that behind it and its result.
fn soft_max_back<T: Real>(p: &[T], d: &mut [T]) {
    let along = dot(p, d);
    d.iter_mut().zip(p).for_each(|(d, &p)| *d = p * (*d - along));
}

/// The probabilities of a token's experts.
fn probabilities<T: Real>(rule: &Choosing, scores: &[T]) -> Vec<T> {
    let mut p = scores.to_vec();
    match rule.gating {
        Gating::SoftMax => soft_max(&mut p),
        Gating::Sigmoid => p.iter_mut().for_each(|v| *v = sigmoid(*v)),
        Gating::RootOfSoftplus => p.iter_mut().for_each(|v| *v = root_of_softplus(*v)),
        Gating::SoftMaxOfChosen => {}
    }
    p
}

/// The square root of ln(1 + e^x).
fn root_of_softplus<T: Real>(x: T) -> T {
    T::of(head_gate(HeadGate::Softplus, x).0.wide().sqrt())
}

/// The sum that weights are divided by, and whether it is theirs.
fn divisor<T: Real>(weights: &[T]) -> (f64, bool) {
    let sum = weights.iter().fold(0.0, |s, w| s + w.wide());
    if sum > f64::from(LEAST_SUM) { (sum, true) } else { (LEAST_SUM.into(), false) }
}

impl<T: Real> Choice<T> {
    /// The choice for tokens by router scores, `[tokens][experts]`: that of the engine for these scores in `f32`.
    pub fn of(rule: &Choosing, tokens: &[u32], scores: &[T]) -> Choice<T> {
        let mut narrow: Vec<f32> = scores.iter().map(|v| v.wide() as f32).collect();
        let experts: Vec<usize> = rule.choose(tokens, &mut narrow).iter().map(|choice| choice.expert).collect();
        let mut weights = Vec::with_capacity(experts.len());
        for (scores, experts) in scores.chunks_exact(rule.experts).zip(experts.chunks_exact(rule.used)) {
            let p = probabilities(rule, scores);
            let mut chosen: Vec<T> = experts.iter().map(|&expert| p[expert]).collect();
            if rule.gating == Gating::SoftMaxOfChosen {
                soft_max(&mut chosen);
            }
            if rule.normalize {
                let sum = T::of(divisor(&chosen).0);
                chosen.iter_mut().for_each(|w| *w = *w / sum);
            }
            if let Some(scale) = rule.scale {
                chosen.iter_mut().for_each(|w| *w *= T::single(scale));
            }
            weights.append(&mut chosen);
        }
        let (places, rows) = by_expert(&experts, rule.used, rule.experts);
        Choice { used: rule.used, experts, weights, places, rows }
    }

    /// The gradient at the scores, from that at the weights.
    pub fn backward(&self, rule: &Choosing, scores: &[T], dw: &[T]) -> Vec<T> {
        let mut out = vec![T::default(); scores.len()];
        let tokens = scores.chunks_exact(rule.experts).zip(out.chunks_exact_mut(rule.experts));
        let chosen = self.experts.chunks_exact(rule.used).zip(dw.chunks_exact(rule.used));
        for ((scores, out), (experts, dw)) in tokens.zip(chosen) {
            let p = probabilities(rule, scores);
            let mut w: Vec<T> = experts.iter().map(|&expert| p[expert]).collect();
            if rule.gating == Gating::SoftMaxOfChosen {
                soft_max(&mut w);
            }
            let mut d: Vec<T> = dw.iter().map(|&d| d * T::of(rule.scale.unwrap_or(1.0).into())).collect();
            if rule.normalize {
                let (sum, is_theirs) = divisor(&w);
                let sum = T::of(sum);
                let along = if is_theirs { dot(&w, &d) / sum } else { T::default() };
                d.iter_mut().for_each(|d| *d = (*d - along) / sum);
            }
            if rule.gating == Gating::SoftMaxOfChosen {
                soft_max_back(&w, &mut d);
            }
            experts.iter().zip(d).for_each(|(&expert, d)| out[expert] += d);
            match rule.gating {
                Gating::SoftMax => soft_max_back(&p, out),
                Gating::Sigmoid => out.iter_mut().zip(&p).for_each(|(d, &p)| *d = *d * p * (T::of(1.0) - p)),
                Gating::RootOfSoftplus => {
                    let slope = |x: T, p: T| head_gate(HeadGate::Softplus, x).1 / (p + p);
                    out.iter_mut().zip(scores.iter().zip(&p)).for_each(|(d, (&x, &p))| *d *= slope(x, p));
                }
                Gating::SoftMaxOfChosen => {}
            }
        }
        out
    }

    /// The factor on row number `row`.
    fn weight(&self, row: usize, weighed: bool) -> T {
        if weighed { self.weights[self.places[row]] } else { T::of(1.0) }
    }

    /// The rows of tokens, `[tokens][columns]`, for their experts, times their weights if `weighed`.
    pub fn dispatch(&self, x: &[T], columns: usize, weighed: bool) -> Vec<T> {
        let mut y = vec![T::default(); self.places.len() * columns];
        y.par_chunks_mut(columns).enumerate().for_each(|(row, y)| {
            let (x, weight) = (&x[self.places[row] / self.used * columns..][..columns], self.weight(row, weighed));
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * weight);
        });
        y
    }

    /// The sums of a token's rows in the order of its choice, times their weights if `weighed`.
    pub fn combine(&self, y: &[T], columns: usize, weighed: bool) -> Vec<T> {
        let mut row_of = vec![0; self.places.len()];
        self.places.iter().enumerate().for_each(|(row, &place)| row_of[place] = row);
        let mut out = vec![T::default(); y.len() / self.used];
        out.par_chunks_mut(columns).zip(row_of.par_chunks(self.used)).for_each(|(out, rows)| {
            for &row in rows {
                let (y, weight) = (&y[row * columns..][..columns], self.weight(row, weighed));
                out.iter_mut().zip(y).for_each(|(out, &y)| *out += y * weight);
            }
        });
        out
    }

    /// The gradient at the weights: for every row the product of a token's row in `tokens` with its own in `rows`.
    pub fn at_weights(&self, tokens: &[T], rows: &[T], columns: usize) -> Vec<T> {
        let mut dw = vec![T::default(); self.places.len()];
        for (row, &place) in rows.chunks_exact(columns).zip(&self.places) {
            dw[place] = dot(&tokens[place / self.used * columns..][..columns], row);
        }
        dw
    }
}
