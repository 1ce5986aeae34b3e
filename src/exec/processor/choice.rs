//! A choice of experts, and rows grouped by expert.

use std::ops::Range;

use crate::kernels::Floats;
use crate::ops;
use crate::ops::experts::{Choice as Chosen, Choosing, combine, gather};

/// The experts of every token of a pass, and the order of rows that are grouped by expert.
pub struct Choice {
    used: usize,
    /// `[tokens][used]`
    chosen: Vec<Chosen>,
    /// The place in `chosen` of each row. An expert's first choices come before its second ones, tokens in order: the
    /// order in which llama-imatrix adds up the inputs of an expert.
    pub places: Vec<usize>,
    /// The rows of each expert.
    pub rows: Vec<Range<usize>>,
}

impl Choice {
    /// The choice by router scores, `[tokens][experts]`, which are overwritten.
    pub fn of(choosing: &Choosing, scores: &mut [f32]) -> Choice {
        let chosen = choosing.choose(scores);
        let mut by_expert = vec![Vec::new(); choosing.experts];
        for rank in 0..choosing.used {
            for place in (rank..chosen.len()).step_by(choosing.used) {
                by_expert[chosen[place].expert].push(place);
            }
        }
        let mut from = 0;
        let rows = by_expert.iter().map(|places| {
            let rows = from..from + places.len();
            from = rows.end;
            rows
        });
        let rows = rows.collect();
        Choice { used: choosing.used, chosen, places: by_expert.concat(), rows }
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
