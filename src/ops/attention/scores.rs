//! Operations of some models on scores before the soft-max, and the cells that a query attends to.

use std::ops::Range;

use super::placed::in_cells;
use super::relative::{Relative, RelativeBack};
use crate::kernels::Isa;
use crate::kernels::elements::{soft_max, soft_max_with_sink};
use crate::kv::Placement;
use crate::math::{powf, tanhf};

/// The cells that a query sees of those up to its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Number of cells.
    pub size: usize,
    /// They begin at a multiple of the size instead of moving with the query.
    pub chunked: bool,
}

impl Window {
    /// The first cell that the query at `position` sees.
    pub fn first(self, position: usize) -> usize {
        if self.chunked { position / self.size * self.size } else { (position + 1).saturating_sub(self.size) }
    }

    /// The first position that does not see any cell below `end` any more.
    pub(super) fn end(self, end: usize) -> usize {
        if self.chunked { end.next_multiple_of(self.size) } else { end + self.size - 1 }
    }
}

/// The last cell that a query sees. Where windows move, they begin by the query's own position all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Its own.
    Own,
    /// That of the last token of its sequence in the pass.
    Pass,
    /// The last one before the pass: tokens of the pass have none.
    Before,
}

/// Operations of a layer on scores, beyond a factor.
#[derive(Clone, Debug, Default)]
pub struct ScoreRules {
    /// `cap * tanh(score * factor)`: factor and cap. Product, tangent and product are rounded.
    pub cap: Option<[f32; 2]>,
    /// ALiBi: per query head what a step of distance lowers the score by, after the factor of attention.
    pub slopes: Vec<f32>,
    /// Per query head the score of a cell that every query sees and that has no value.
    pub sinks: Vec<f32>,
    /// Biases by distance, which are added to scores before their factor; in both directions alone.
    pub relative: Option<Relative>,
    /// The same of queries that attend backwards alone.
    pub back: Option<RelativeBack>,
}

impl ScoreRules {
    /// True if scores stay as they are.
    pub fn is_empty(&self) -> bool {
        let biased = self.relative.is_some() || self.back.is_some();
        self.cap.is_none() && self.slopes.is_empty() && self.sinks.is_empty() && !biased
    }

    /// Scores of a query head at `position` to probabilities, as [`soft_max`] has them; `row` begins with cell `begin`.
    pub(super) fn probabilities(
        &self,
        isa: Isa,
        row: &mut [f32],
        visible: Range<usize>,
        scale: f32,
        (head, position, begin): (usize, usize, usize),
        placement: &Placement,
    ) {
        let seen = &mut row[visible.clone()];
        if let Some([factor, cap]) = self.cap {
            seen.iter_mut().for_each(|s| *s = tanhf(*s * factor) * cap);
        }
        if let Some(biases) = &self.back {
            for (s, cell) in seen.iter_mut().zip(begin + visible.start..) {
                *s += biases.of(head, position - cell);
            }
        }
        let mut scale = scale;
        if let Some(slope) = self.slopes.get(head) {
            for (s, cell) in seen.iter_mut().zip(begin + visible.start..) {
                *s = *s * scale + slope * -((position - cell) as f32);
            }
            scale = 1.0;
        }
        in_cells(row, visible, begin, placement, |row, visible| match self.sinks.get(head) {
            Some(&sink) => soft_max_with_sink(isa, row, visible, scale, sink),
            None => soft_max(isa, row, visible, scale),
        });
    }
}

/// The slopes of ALiBi for `heads` heads (ggml `ggml_compute_forward_soft_max_f32`): powers of 2^(-bias / n) for the
/// first n heads, n the greatest power of 2 up to their number, then every other power of the root of that.
pub fn alibi_slopes(heads: usize, bias: f32) -> Vec<f32> {
    let n = 1usize << heads.max(1).ilog2();
    let (first, rest) = (powf(2.0, -bias / n as f32), powf(2.0, -(bias / 2.0) / n as f32));
    let slope = |head: usize| {
        if head < n { powf(first, (head + 1) as f32) } else { powf(rest, (2 * (head - n) + 1) as f32) }
    };
    (0..heads).map(slope).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_move_or_stand() {
        let moving = Window { size: 4, chunked: false };
        let standing = Window { size: 4, chunked: true };
        let first = |w: Window| (0..9).map(|p| w.first(p)).collect::<Vec<_>>();
        assert_eq!(first(moving), [0, 0, 0, 0, 1, 2, 3, 4, 5]);
        assert_eq!(first(standing), [0, 0, 0, 0, 4, 4, 4, 4, 8]);
        for window in [moving, standing] {
            for end in 1..20 {
                let sees = |p: &usize| window.first(*p) < end;
                assert_eq!((0..40).filter(sees).max(), Some(window.end(end) - 1));
            }
        }
    }

    #[test]
    fn slopes_are_powers_and_then_powers_between() {
        assert_eq!(alibi_slopes(4, 8.0), [0.25, 0.0625, 1.0 / 64.0, 1.0 / 256.0]);
        assert_eq!(alibi_slopes(3, 8.0), [1.0 / 16.0, 1.0 / 256.0, 0.25]);
    }

    #[test]
    fn capped_scores_and_slopes_come_before_the_soft_max() {
        let rules = ScoreRules {
            cap: Some([0.5, 2.0]),
            slopes: vec![9.0, 0.25],
            sinks: vec![0.0, 1.0],
            ..ScoreRules::default()
        };
        let mut row = vec![3.0f32; 16];
        let mut expected = row.clone();
        let placement = Placement::default();
        let (at, isa) = ((1, 106, 100), Isa::detect());
        rules.probabilities(isa, &mut row, 2..7, 0.125, at, &placement);
        for (i, s) in expected.iter_mut().enumerate() {
            *s = (tanhf(*s * 0.5) * 2.0) * 0.125 + 0.25 * -(6.0 - i as f32);
        }
        soft_max_with_sink(Isa::detect(), &mut expected, 2..7, 1.0, 1.0);
        assert_eq!(row, expected);
    }
}
