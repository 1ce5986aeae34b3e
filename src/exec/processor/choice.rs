//! A choice of experts, and rows grouped by expert.

use std::ops::Range;

use crate::kernels::Floats;
use crate::ops;
use crate::ops::experts::{Choice as Chosen, Choosing, by_expert, combine, gather};

/// The experts of every token of a pass, and the order of rows that are grouped by expert.
pub struct Choice {
    used: usize,
    /// `[tokens][used]`
    chosen: Vec<Chosen>,
    /// The place in `chosen` of each row.
    pub places: Vec<usize>,
    /// The rows of each expert.
    pub rows: Vec<Range<usize>>,
}

impl Choice {
    /// The choice for tokens by router scores, `[tokens][experts]`, which are overwritten.
    pub fn of(choosing: &Choosing, tokens: &[u32], scores: &mut [f32]) -> Choice {
        let chosen = choosing.choose(tokens, scores);
        let experts: Vec<usize> = chosen.iter().map(|choice| choice.expert).collect();
        let (places, rows) = by_expert(&experts, choosing.used, choosing.experts);
        Choice { used: choosing.used, chosen, places, rows }
    }

    /// One expert for each token, of `count`.
    pub fn of_one(experts: &[usize], count: usize) -> Choice {
        let (places, rows) = by_expert(experts, 1, count);
        let chosen = experts.iter().map(|&expert| Chosen { expert, weight: 1.0 }).collect();
        Choice { used: 1, chosen, places, rows }
    }

    /// Numbers of the experts, `[tokens][used]`.
    pub fn numbers(&self) -> Floats {
        let mut numbers = Floats::scratch(self.chosen.len());
        numbers.iter_mut().zip(&self.chosen).for_each(|(number, choice)| *number = choice.expert as f32);
        numbers
    }

    /// Rows of `x`, `[tokens][columns]`, grouped by expert, times their weights if `weighed`.
    pub fn dispatch(&self, x: &[f32], columns: usize, weighed: bool) -> Floats {
        let mut y = gather(x, columns, self.places.iter().map(|place| place / self.used));
        if weighed {
            for (row, &place) in y.chunks_exact_mut(columns).zip(&self.places) {
                ops::scale(row, self.chosen[place].weight);
            }
        }
        y
    }

    /// The sum of a token's rows in the order of its choice, times their weights if `weighed`.
    pub fn combine(&self, y: &[f32], columns: usize, weighed: bool) -> Floats {
        let mut in_order = Floats::scratch(y.len());
        for (row, &place) in y.chunks_exact(columns).zip(&self.places) {
            in_order[place * columns..][..columns].copy_from_slice(row);
        }
        if weighed {
            return combine(&in_order, &self.chosen, self.used, columns);
        }
        // a product with 1 is exact
        let plain: Vec<Chosen> = self.chosen.iter().map(|choice| Chosen { weight: 1.0, ..*choice }).collect();
        combine(&in_order, &plain, self.used, columns)
    }
}
