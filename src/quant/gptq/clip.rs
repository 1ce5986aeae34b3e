//! Q4_0 in groups: the scale that costs least at the outputs of the layer, among many.
//!
//! With `m` the largest magnitude of the group, the candidates are `2 p m / 15` for `p` = 1, 0.99 ... 0.25, so that the largest
//! weights are cut, and the same with a negative sign: codes reach from -8 to 7, and a negative scale has the longer side where
//! the positive weights are. What a candidate costs is `(Q - W) R R^T (Q - W)^T` with all weights of the group rounded to
//! the nearest code and `R` the group's block of the factor on the diagonal. The first candidate that costs least is taken,
//! positive ones first.

use trine_formats::types::grid::{Grid, Step};
use trine_formats::types::num::{f16_to_f32, f32_to_f16, put_f16};
use trine_formats::types::{Part, TypeId, TypeInfo};

use super::Options;
use super::factor::Factor;
use super::rounding::Rounding;
use crate::kernels::Isa;
use crate::linalg::{COLUMNS, ROWS, tile_f64};

/// Steps of a hundredth by which the range is narrowed.
pub const SHRINKS: usize = 75;
const PARTS: f64 = 100.0;
/// The lowest and the highest level.
const LEVELS: (f64, f64) = (-8.0, 7.0);
/// Steps between the two, which the range is divided by.
const STEPS: f64 = 15.0;

/// Spans are groups of blocks that share a scale.
pub struct Clip<'a> {
    factor: &'a Factor,
    options: Options,
    isa: Isa,
    info: &'static TypeInfo,
    grid: &'static Grid,
    candidates: Vec<f32>,
    /// Errors of four candidates side by side, column after column.
    errors: Vec<[f64; ROWS]>,
    scale: f32,
    codes: Vec<u8>,
}

impl<'a> Clip<'a> {
    /// Groups of Q4_0; `None` for other types.
    pub fn new(
        info: &'static TypeInfo,
        grid: &'static Grid,
        factor: &'a Factor,
        options: Options,
        isa: Isa,
    ) -> Option<Clip<'a>> {
        (info.id == TypeId::Q4_0).then(|| Clip {
            factor,
            options,
            isa,
            info,
            grid,
            candidates: Vec::new(),
            errors: Vec::new(),
            scale: 0.0,
            codes: Vec::new(),
        })
    }

    /// Lists the scales to try for weights of at most `most`.
    fn list(&mut self, weights: &[f64]) {
        let most = weights.iter().fold(0.0, |m, w| w.abs().max(m));
        let all_zero = most == 0.0;
        let one_sided = weights.iter().all(|&w| w >= 0.0) && !all_zero;
        let range = match (all_zero, self.options.compat && one_sided) {
            (true, _) => 2.0,
            (_, true) => most,
            (_, false) => 2.0 * most,
        };
        self.candidates.clear();
        let signs: &[f64] = match self.options.compat {
            true => &[1.0],
            false => &[1.0, -1.0],
        };
        for sign in signs {
            for shrink in 0..=SHRINKS {
                let part = 1.0 - shrink as f64 / PARTS;
                let scale = (sign * (part * range / STEPS)) as f32;
                let scale = match self.options.compat {
                    true => scale,
                    false => f16_to_f32(f32_to_f16(scale)),
                };
                self.candidates.push(scale);
            }
        }
    }

    /// What each of the four candidates from number `at` on costs.
    fn costs(&mut self, first: usize, at: usize, weights: &[f64]) -> [f64; ROWS] {
        let mut scales = [0.0; ROWS];
        for (to, &scale) in scales.iter_mut().zip(&self.candidates[at..]) {
            *to = f64::from(scale);
        }
        let inverses = scales.map(|s| 1.0 / s);
        self.errors.resize(weights.len(), [0.0; ROWS]);
        for (to, &w) in self.errors.iter_mut().zip(weights) {
            for i in 0..ROWS {
                to[i] = nearest(within(w * inverses[i])) * scales[i] - w;
            }
        }
        let mut costs = [0.0; ROWS];
        for panel in self.factor.root(first) {
            // The rows of a panel end where the columns of the group do.
            let rows = (panel.len() / COLUMNS).min(weights.len());
            let errors = self.errors[..rows].as_flattened();
            let outputs = tile_f64(self.isa, errors, panel);
            for (cost, outputs) in costs.iter_mut().zip(&outputs) {
                *cost = outputs.iter().fold(*cost, |c, y| c + y * y);
            }
        }
        costs
    }
}

/// The nearest number that is a level or lies between two of them.
#[inline(always)]
fn within(x: f64) -> f64 {
    let x = if x > LEVELS.0 { x } else { LEVELS.0 };
    if x < LEVELS.1 { x } else { LEVELS.1 }
}

/// The nearest integer, ties to even, of a small number: the sum has no bits for a fraction.
#[inline(always)]
fn nearest(x: f64) -> f64 {
    const SHIFT: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    (x + SHIFT) - SHIFT
}

impl Rounding for Clip<'_> {
    fn span(&self) -> usize {
        self.options.group
    }

    fn begin(&mut self, first: usize, weights: &[f64]) {
        self.codes.clear();
        self.codes.resize(weights.len(), 0);
        self.list(weights);
        let mut best = f64::INFINITY;
        self.scale = self.candidates[0];
        for at in (0..self.candidates.len()).step_by(ROWS) {
            let costs = self.costs(first, at, weights);
            for (&cost, &scale) in costs.iter().zip(&self.candidates[at..]) {
                // What a scale costs that is beyond half floats is infinite or no number, and is never less.
                if cost < best {
                    (best, self.scale) = (cost, scale);
                }
            }
        }
    }

    fn round(&mut self, i: usize, weight: f64) -> f64 {
        let step = Step {
            scale: self.scale,
            offset: 0.0,
        };
        let code = self.grid.nearest(step, weight);
        self.codes[i] = code;
        self.grid.value(step, code).into()
    }

    fn finish(&mut self, out: &mut [u8]) {
        let blocks = out.chunks_exact_mut(self.info.bytes);
        for (block, codes) in blocks.zip(self.codes.chunks_exact(self.info.block)) {
            put_f16(block, self.info.at(Part::Scale), self.scale);
            self.grid.place(codes, block);
        }
    }
}
