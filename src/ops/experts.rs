//! Mixtures of experts: which experts a token goes to, and with which weights.
//!
//! The order is that of llama.cpp's `build_moe_ffn`. A token's experts are numbered by rank, the most probable first;
//! their outputs are multiplied by their weights and added up in that order.

use std::cmp::Ordering;
use std::ops::Range;

use super::activation::{sigmoid, softplus};
use super::order;
use super::soft_max::soft_max;
pub use crate::arch::{Claim, Gating};
use crate::kernels::Floats;
use crate::pool;

/// Least sum that weights are divided by: the smallest normal half float.
pub const LEAST_SUM: f32 = 6.103_515_6e-5;

/// An expert of a token, and the factor on its output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// Number of the expert.
    pub expert: usize,
    /// Factor on its output.
    pub weight: f32,
}

/// How experts are chosen and weighed.
#[derive(Clone, Debug)]
pub struct Choosing {
    /// Experts of the block.
    pub experts: usize,
    /// Experts that a token goes to.
    pub used: usize,
    /// From scores to probabilities.
    pub gating: Gating,
    /// The values by which experts are ranked.
    pub claim: Claim,
    /// Number of experts that share one, whose number then takes the place of theirs and selects the weight
    /// (llama.cpp's GroveMoE). 1 where experts share none.
    pub shared_by: usize,
    /// Bias on the probabilities, used for the choice only.
    pub bias: Option<Vec<f32>>,
    /// Groups of as many experts each, and how many of them, those with the greatest sums of two, a token may choose
    /// from.
    pub groups: Option<[usize; 2]>,
    /// True if weights are divided by their sum, which is added up in `f64`, rounded, and at least 2^-14.
    pub normalize: bool,
    /// A last factor on the weights.
    pub scale: Option<f32>,
    /// The experts of every token of the vocabulary, `[tokens][used]`, where the scores do not choose them: they make the
    /// weights alone.
    pub table: Option<Vec<u32>>,
}

impl Choosing {
    /// The choices of every token, `[tokens][used]`, the most probable first.
    ///
    /// `tokens` are those of the rows, which a table asks for. `scores` are the router's, `[tokens][experts]`, and are
    /// overwritten. Equal probabilities are ordered as
    /// libstdc++'s `std::sort` of all of them leaves them.
    pub fn choose(&self, tokens: &[u32], scores: &mut [f32]) -> Vec<Choice> {
        let mut choices = Vec::with_capacity(scores.len() / self.experts.max(1) * self.used);
        let mut weights = Vec::with_capacity(self.used);
        for (row, scores) in scores.chunks_exact_mut(self.experts.max(1)).enumerate() {
            let claims: Option<Vec<f32>> = match self.claim {
                Claim::Probabilities => None,
                Claim::Scores => Some(scores.to_vec()),
                Claim::Sigmoids => Some(scores.iter().map(|&v| sigmoid(v)).collect()),
            };
            match self.gating {
                Gating::SoftMax => soft_max(scores),
                Gating::Sigmoid => scores.iter_mut().for_each(|v| *v = sigmoid(*v)),
                Gating::RootOfSoftplus => scores.iter_mut().for_each(|v| *v = softplus(*v).sqrt()),
                Gating::SoftMaxOfChosen => {}
            }
            let mut chosen = match &self.table {
                Some(table) => {
                    let of_token = &table[tokens[row] as usize * self.used..][..self.used];
                    of_token.iter().map(|&expert| expert as usize).collect()
                }
                None => self.best(claims.as_deref().unwrap_or(scores)),
            };
            chosen.truncate(self.used);
            if self.shared_by > 1 {
                let inverse = 1.0 / self.shared_by as f32;
                let chunk = |expert: usize| (expert as f32 * inverse) as usize;
                chosen.iter_mut().for_each(|expert| *expert = chunk(*expert));
            }
            weights.clear();
            weights.extend(chosen.iter().map(|&expert| scores[expert]));
            self.weigh(&mut weights);
            let pairs = chosen.into_iter().zip(&weights);
            choices.extend(pairs.map(|(expert, &weight)| Choice { expert, weight }));
        }
        choices
    }

    /// The experts in the order of their claims.
    fn best(&self, claims: &[f32]) -> Vec<usize> {
        if self.bias.is_none() && self.groups.is_none() {
            return descending(claims);
        }
        let mut claims = claims.to_vec();
        if let Some(bias) = &self.bias {
            claims.iter_mut().zip(bias).for_each(|(c, b)| *c += b);
        }
        if let Some([groups, used]) = self.groups {
            let size = claims.len() / groups;
            let two = |group: &[f32]| {
                let best = descending(group);
                let best = best.iter().take(2).map(|&i| f64::from(group[i]));
                best.sum::<f64>() as f32
            };
            let sums: Vec<f32> = claims.chunks_exact(size).map(two).collect();
            for group in &descending(&sums)[used..] {
                claims[group * size..][..size].fill(f32::NEG_INFINITY);
            }
        }
        descending(&claims)
    }

    fn weigh(&self, weights: &mut [f32]) {
        if self.gating == Gating::SoftMaxOfChosen {
            soft_max(weights);
        }
        if self.normalize {
            let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
            let sum = (sum as f32).max(LEAST_SUM);
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        if let Some(scale) = self.scale {
            weights.iter_mut().for_each(|w| *w *= scale);
        }
    }
}

/// The places of the values from the greatest down.
fn descending(values: &[f32]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    if values.iter().any(|p| p.is_nan()) {
        // The reference's sort has no answer to these, which come last here; what follows is NaN whichever experts are
        // taken.
        let last = |&place: &usize| values[place].is_nan();
        places.sort_by(|a, b| {
            let falling = values[*b].partial_cmp(&values[*a]);
            last(a).cmp(&last(b)).then(falling.unwrap_or(Ordering::Equal))
        });
    } else {
        order::sort(&mut places, |&a, &b| values[a] > values[b]);
    }
    places
}

/// The order of rows that are grouped by expert: the place of each in the choices of all tokens, `[tokens][used]`, and the
/// rows of each of `count` experts. An expert's first choices come before its second ones, tokens in order: the order in
/// which llama-imatrix adds up the inputs of an expert.
pub fn by_expert(experts: &[usize], used: usize, count: usize) -> (Vec<usize>, Vec<Range<usize>>) {
    let mut by_expert = vec![Vec::new(); count];
    for rank in 0..used {
        for place in (rank..experts.len()).step_by(used) {
            by_expert[experts[place]].push(place);
        }
    }
    let mut from = 0;
    let rows = by_expert.iter().map(|places| {
        let rows = from..from + places.len();
        from = rows.end;
        rows
    });
    let rows = rows.collect();
    (by_expert.concat(), rows)
}

/// The rows of `x`, `[tokens][columns]`, of the tokens in `rows`, one after another.
pub fn gather(x: &[f32], columns: usize, rows: impl ExactSizeIterator<Item = usize>) -> Floats {
    let mut out = Floats::scratch(rows.len() * columns);
    for (to, row) in out.chunks_exact_mut(columns.max(1)).zip(rows) {
        to.copy_from_slice(&x[row * columns..][..columns]);
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
    use crate::math::expf;

    #[test]
    fn scores_that_are_no_numbers_come_last_and_break_no_order() {
        for n in 2..80 {
            let values: Vec<f32> = (0..n)
                .map(|i| match i % 3 {
                    0 => f32::NAN,
                    _ => ((i * 37) % n) as f32,
                })
                .collect();
            let order = descending(&values);
            let numbers: Vec<f32> = order.iter().map(|&i| values[i]).collect();
            let known = numbers.iter().take_while(|x| !x.is_nan()).count();
            assert!(numbers[..known].is_sorted_by(|a, b| a >= b));
            assert!(numbers[known..].iter().all(|x| x.is_nan()));
        }
    }

    fn rule(experts: usize, used: usize, normalize: bool) -> Choosing {
        Choosing {
            experts,
            used,
            gating: Gating::SoftMax,
            claim: Claim::Probabilities,
            shared_by: 1,
            bias: None,
            groups: None,
            normalize,
            scale: None,
            table: None,
        }
    }

    fn of(scores: &[f32], used: usize, normalize: bool) -> Vec<Choice> {
        rule(scores.len(), used, normalize).choose(&[], &mut scores.to_vec())
    }

    fn experts(rule: &Choosing, scores: &[f32]) -> Vec<usize> {
        let chosen = rule.choose(&[], &mut scores.to_vec());
        chosen.iter().map(|c| c.expert).collect()
    }

    #[test]
    fn a_bias_counts_for_the_choice_alone() {
        let biased = Choosing {
            gating: Gating::Sigmoid,
            bias: Some(vec![0.0, 1.0, 0.0]),
            scale: Some(2.5),
            ..rule(3, 2, false)
        };
        let chosen = biased.choose(&[], &mut [2.0, -3.0, 1.0]);
        let expected = [(1, sigmoid(-3.0) * 2.5), (0, sigmoid(2.0) * 2.5)];
        assert_eq!(chosen.iter().map(|c| (c.expert, c.weight)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn scores_decide_where_sigmoids_are_equal() {
        // both sigmoids round to 1
        let by = |claim| Choosing { gating: Gating::Sigmoid, claim, ..rule(3, 1, false) };
        assert_eq!(experts(&by(Claim::Scores), &[50.0, 60.0, 1.0]), [1]);
        assert_eq!(experts(&by(Claim::Sigmoids), &[50.0, 60.0, 1.0]), [0]);
    }

    #[test]
    fn experts_that_share_one_are_numbered_by_it() {
        let listed = Choosing { table: Some(vec![0, 1, 2, 0]), ..rule(3, 2, true) };
        let chosen = listed.choose(&[1, 0], &mut [0.0; 6]);
        let experts: Vec<usize> = chosen.iter().map(|choice| choice.expert).collect();
        assert_eq!((&experts[..], chosen[0].weight), (&[2, 0, 0, 1][..], 0.5));
        let shared = Choosing { shared_by: 3, ..rule(6, 2, false) };
        let scores = [0.0, 1.0, 2.0, 3.0, 9.0, 5.0];
        let mut probabilities = scores;
        soft_max(&mut probabilities);
        let chosen = shared.choose(&[], &mut scores.to_vec());
        let weights: Vec<_> = chosen.iter().map(|c| (c.expert, c.weight)).collect();
        assert_eq!(weights, [(1, probabilities[1]); 2]);
    }

    #[test]
    fn experts_outside_of_the_best_groups_are_not_chosen() {
        let grouped = Choosing { gating: Gating::SoftMaxOfChosen, groups: Some([3, 2]), ..rule(9, 3, false) };
        // the group of the greatest score has the least sum of two
        let scores = [9.0, -9.0, -9.0, 5.0, 5.0, 0.0, 4.0, 3.0, 8.0];
        assert_eq!(experts(&grouped, &scores), [8, 3, 4]);
        let mut expected = vec![8.0, 5.0, 5.0];
        soft_max(&mut expected);
        let weights = grouped.choose(&[], &mut scores.to_vec());
        assert_eq!(weights.iter().map(|c| c.weight).collect::<Vec<_>>(), expected);
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
        for (a, b) in plain.iter().zip(of(&[1.0, 0.25, 3.0, -2.0, 0.0, 0.125], 3, true)) {
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
