//! Groups with one scale: the scale that costs least, among many.
//!
//! With `m` the largest magnitude of the group, the candidates for Q4_0 are `2 p m / 15` for `p` = 1, 0.99 ... 0.25, so
//! that the largest weights are cut, and the same with a negative sign: codes reach from -8 to 7, and a negative scale
//! has the longer side where the positive weights are. The first candidate that costs least is taken, positive ones
//! first.
//!
//! The cost of a candidate, with all weights of the group rounded to the nearest code, is counted in one of two ways:
//! column by column, each by its importance; or as `(Q - W) R R^T (Q - W)^T`, with `R` the group's block of the factor
//! on the diagonal, which is what is left when all columns behind the group have made up for it. The second is
//! MARLIN's. It trusts the sums of the text more than they deserve: measured on models, the first is better
//! (`docs/gptq.md`).

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::factor::Factor;
use super::options::SHRINKS;
use crate::kernels::Isa;
use crate::linalg::{COLUMNS, ROWS, tile_f64};

/// The range is narrowed by such parts of it.
const PARTS: f64 = 100.0;

/// A search for scales, with its memory.
pub struct Clip {
    /// As MARLIN's program does: see [`Options::compat`](super::Options::compat).
    compat: bool,
    isa: Isa,
    /// The lowest and the highest level.
    ends: (f64, f64),
    candidates: Vec<f32>,
    /// Errors of four candidates side by side, column after column.
    errors: Vec<[f64; ROWS]>,
}

impl Clip {
    /// A search for a type whose codes stand for `count` levels from `lowest` on, half of them negative.
    pub fn new(lowest: i16, count: u16, compat: bool, isa: Isa) -> Clip {
        let lowest = f64::from(lowest);
        Clip { compat, isa, ends: (lowest, lowest + f64::from(count - 1)), candidates: Vec::new(), errors: Vec::new() }
    }

    /// The scale with the least sum of squared errors, each multiplied by the importance of its column.
    pub fn by_importance(&mut self, weights: &[f32], importance: &[f32]) -> f32 {
        let weights: Vec<f64> = weights.iter().map(|&w| w.into()).collect();
        let importance: Vec<f64> = importance.iter().map(|&i| i.into()).collect();
        self.least(&weights, |clip, at| {
            clip.err(at, &weights);
            let mut costs = [0.0; ROWS];
            for (errors, importance) in clip.errors.iter().zip(&importance) {
                for (cost, error) in costs.iter_mut().zip(errors) {
                    *cost += importance * (error * error);
                }
            }
            costs
        })
    }

    /// The scale with the least error at the outputs once later columns have made up for it, for the group that starts
    /// at column `first`.
    pub fn by_factor(&mut self, factor: &Factor, first: usize, weights: &[f64]) -> f32 {
        self.least(weights, |clip, at| {
            clip.err(at, weights);
            let mut costs = [0.0; ROWS];
            for panel in factor.root(first) {
                // The rows of a panel end where the columns of the group do.
                let rows = (panel.len() / COLUMNS).min(weights.len());
                let errors = clip.errors[..rows].as_flattened();
                let outputs = tile_f64(clip.isa, errors, panel);
                for (cost, outputs) in costs.iter_mut().zip(&outputs) {
                    *cost = outputs.iter().fold(*cost, |c, y| c + y * y);
                }
            }
            costs
        })
    }

    /// The first of the candidates that costs least; `costs` are those of the four from a number on.
    fn least(&mut self, weights: &[f64], costs: impl Fn(&mut Clip, usize) -> [f64; ROWS]) -> f32 {
        self.list(weights);
        let mut best = f64::INFINITY;
        let mut scale = self.candidates[0];
        for at in (0..self.candidates.len()).step_by(ROWS) {
            let costs = costs(self, at);
            for (&cost, &candidate) in costs.iter().zip(&self.candidates[at..]) {
                // What a scale costs that is beyond half floats is infinite or no number, and is never less.
                if cost < best {
                    (best, scale) = (cost, candidate);
                }
            }
        }
        scale
    }

    /// Lists the scales to try for weights of at most `most`.
    fn list(&mut self, weights: &[f64]) {
        let most = weights.iter().fold(0.0, |m, w| w.abs().max(m));
        let all_zero = most == 0.0;
        let one_sided = weights.iter().all(|&w| w >= 0.0) && !all_zero;
        let range = match (all_zero, self.compat && one_sided) {
            (true, _) => 2.0,
            (_, true) => most,
            (_, false) => 2.0 * most,
        };
        self.candidates.clear();
        let steps = self.ends.1 - self.ends.0;
        let signs: &[f64] = match self.compat {
            true => &[1.0],
            false => &[1.0, -1.0],
        };
        for sign in signs {
            for shrink in 0..=SHRINKS {
                let part = 1.0 - shrink as f64 / PARTS;
                let scale = (sign * (part * range / steps)) as f32;
                let scale = match self.compat {
                    true => scale,
                    false => f16_to_f32(f32_to_f16(scale)),
                };
                self.candidates.push(scale);
            }
        }
    }

    /// The errors with each of the four candidates from number `at` on.
    fn err(&mut self, at: usize, weights: &[f64]) {
        let mut scales = [0.0; ROWS];
        for (to, &scale) in scales.iter_mut().zip(&self.candidates[at..]) {
            *to = f64::from(scale);
        }
        let inverses = scales.map(|s| 1.0 / s);
        let ends = self.ends;
        self.errors.resize(weights.len(), [0.0; ROWS]);
        for (to, &w) in self.errors.iter_mut().zip(weights) {
            for i in 0..ROWS {
                to[i] = nearest(within(ends, w * inverses[i])) * scales[i] - w;
            }
        }
    }
}

/// The nearest number that is a level or lies between two of them.
#[inline(always)]
fn within(ends: (f64, f64), x: f64) -> f64 {
    let x = if x > ends.0 { x } else { ends.0 };
    if x < ends.1 { x } else { ends.1 }
}

/// The nearest integer, ties to even, of a small number: the sum has no bits for a fraction.
#[inline(always)]
fn nearest(x: f64) -> f64 {
    const SHIFT: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    (x + SHIFT) - SHIFT
}
