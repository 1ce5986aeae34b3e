//! Mixtures of experts: which experts a token goes to, and with which weights.
//!
//! The order is that of llama.cpp's `build_moe_ffn`. A token's experts are numbered by rank, the most probable first;
//! what they give is multiplied by their weights and added up in that order.

use std::cmp::Ordering;

use super::order;
use crate::kernels::Floats;
use crate::math::{expf, pexp};
use crate::pool;

/// From the router's scores of a token to probabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Gating {
    /// Soft-max over all experts.
    SoftMax,
}

/// Least sum that weights are divided by: the smallest normal half float.
const LEAST_SUM: f32 = 6.103_515_6e-5;

/// An expert that a token goes to, and the factor on what it gives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// Number of the expert.
    pub expert: usize,
    /// Factor on its output.
    pub weight: f32,
}

/// The `used` most probable of the experts of every token, `[tokens][used]`, most probable first.
///
/// `scores` are the router's, `[tokens][experts]`, and are overwritten. Equal probabilities are ordered as libstdc++'s
/// `std::sort` of all of them leaves them. With `normalize` weights are divided by their sum, which is added up in `f64`,
/// rounded, and at least 2^-14.
pub fn choose(
    scores: &mut [f32],
    experts: usize,
    used: usize,
    gating: Gating,
    normalize: bool,
) -> Vec<Choice> {
    let mut choices = Vec::with_capacity(scores.len() / experts.max(1) * used);
    let mut ranks: Vec<usize> = Vec::with_capacity(experts);
    for scores in scores.chunks_exact_mut(experts.max(1)) {
        match gating {
            Gating::SoftMax => soft_max(scores),
        }
        ranks.clear();
        ranks.extend(0..experts);
        if scores.iter().any(|p| p.is_nan()) {
            // The reference's sort has no answer to these; what follows is NaN whichever experts are taken.
            ranks.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap_or(Ordering::Equal));
        } else {
            order::sort(&mut ranks, |&a, &b| scores[a] > scores[b]);
        }
        let chosen = &ranks[..used.min(experts)];
        let sum: f64 = chosen.iter().map(|&e| f64::from(scores[e])).sum();
        let sum = (sum as f32).max(LEAST_SUM);
        choices.extend(chosen.iter().map(|&expert| Choice {
            expert,
            weight: if normalize {
                scores[expert] / sum
            } else {
                scores[expert]
            },
        }));
    }
    choices
}

/// Soft-max over a whole row (ggml `ggml_vec_soft_max_f32`): groups of four by the 4-lane exponential, each summed in `f32`
/// as `(e0 + e1) + (e2 + e3)`; what is left of the row by libm's, one by one; the total in `f64`.
fn soft_max(row: &mut [f32]) {
    let max = row
        .iter()
        .fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
    let mut total = 0f64;
    let (groups, rest) = row.as_chunks_mut::<4>();
    for e in groups {
        e.iter_mut().for_each(|v| *v = pexp(*v - max));
        total += f64::from((e[0] + e[1]) + (e[2] + e[3]));
    }
    for v in rest {
        *v = expf(*v - max);
        total += f64::from(*v);
    }
    let inverse = (1.0 / total) as f32;
    row.iter_mut().for_each(|e| *e *= inverse);
}

/// The rows of `x`, `[tokens][columns]`, of the tokens in `rows`, one after another.
pub fn gather(x: &[f32], columns: usize, rows: impl Iterator<Item = usize>) -> Vec<f32> {
    let mut out = Vec::with_capacity(rows.size_hint().0 * columns);
    for row in rows {
        out.extend_from_slice(&x[row * columns..][..columns]);
    }
    out
}

/// Adds up what a token's experts gave: `y` is `[tokens][used][columns]`, the result `[tokens][columns]`. Every row is
/// multiplied by its choice's weight, then added in order of rank.
pub fn combine(y: &[f32], choices: &[Choice], used: usize, columns: usize) -> Floats {
    let mut out = Floats::scratch(y.len() / used.max(1));
    pool::chunks_mut(&mut out, columns, |token, out| {
        let rows = y[token * used * columns..].chunks_exact(columns);
        let choices = &choices[token * used..][..used];
        for (rank, (row, choice)) in rows.zip(choices).enumerate() {
            let products = row.iter().map(|v| v * choice.weight);
            if rank == 0 {
                out.iter_mut().zip(products).for_each(|(o, p)| *o = p);
            } else {
                out.iter_mut().zip(products).for_each(|(o, p)| *o += p);
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scores: &[f32], used: usize, normalize: bool) -> Vec<Choice> {
        let n = scores.len();
        choose(&mut scores.to_vec(), n, used, Gating::SoftMax, normalize)
    }

    #[test]
    fn the_most_probable_experts_come_first_and_equals_by_number() {
        let chosen = of(&[0.5, 2.0, 0.5, 2.0, -1.0], 4, false);
        let experts: Vec<usize> = chosen.iter().map(|c| c.expert).collect();
        assert_eq!(experts, [1, 3, 0, 2]);
        assert_eq!(chosen[0].weight, chosen[1].weight);
    }

    #[test]
    fn normalized_weights_are_quotients_of_the_rounded_sum() {
        let plain = of(&[1.0, 0.25, 3.0, -2.0, 0.0, 0.125], 3, false);
        let sum: f64 = plain.iter().map(|c| f64::from(c.weight)).sum();
        for (a, b) in plain
            .iter()
            .zip(of(&[1.0, 0.25, 3.0, -2.0, 0.0, 0.125], 3, true))
        {
            assert_eq!((a.weight / sum as f32).to_bits(), b.weight.to_bits());
        }
    }

    #[test]
    fn the_tail_of_a_row_takes_the_exponential_of_libm() {
        let scores = [0.3f32, -0.7];
        let e = [expf(0.0), expf(-0.7 - 0.3)];
        let total = f64::from(e[0]) + f64::from(e[1]);
        let chosen = of(&scores, 2, false);
        let expected = e[1] * (1.0 / total) as f32;
        assert_eq!(chosen[1].weight.to_bits(), expected.to_bits());
    }

    #[test]
    fn no_number_is_no_panic() {
        assert_eq!(of(&[f32::NAN; 40], 3, true).len(), 3);
    }

    #[test]
    fn outputs_are_weighed_and_added_in_order_of_rank() {
        let weights = [0.1f32, 0.7, 0.3];
        let choices = weights.map(|weight| Choice { expert: 0, weight });
        let y = [1e8f32, 3.0, -1e8];
        let got = combine(&y, &choices, 3, 1);
        assert_eq!(*got, [(1e8 * 0.1 + 3.0 * 0.7) + -1e8 * 0.3]);
    }
}
