//! Super-blocks: the multiples of the block's floats that cost least, and the floats that suit these.
//!
//! Encoders weigh the error of a column by its importance and by the size of its weight, which is a guess at what the
//! text would say. The Hessian says it, so the cost here is the squared error of each weight, rounded to the nearest
//! code, times its column of the diagonal. From the encoder's block on, each group takes the best of the multiples
//! around its own, then the block the floats of least squares, in turns until nothing is better.

use trine_formats::types::grid::{Grid, Levels, Multiples, Step};
use trine_formats::types::num::{f16_at, f16_to_f32, f32_to_f16, put_f16};
use trine_formats::types::{Part, TypeInfo};

/// Multiples that are tried on either side of a group's own.
const REACH: i16 = 5;
/// Turns of a block at most.
const TURNS: usize = 4;
/// Sums that run side by side, each over every eighth weight.
const LANES: usize = 8;

/// A search for the steps of super-blocks of one type.
pub struct Search {
    info: &'static TypeInfo,
    grid: &'static Grid,
    multiples: &'static Multiples,
    /// The multiples of the groups of a block.
    all: Vec<[i16; 2]>,
}

/// The floats of a block: of the scales, and of the minima.
type Floats = [f32; 2];

impl Search {
    /// A search for the type, if it has super-blocks.
    pub fn new(info: &'static TypeInfo, grid: &'static Grid) -> Option<Search> {
        let all = vec![[0; 2]; info.block / grid.group];
        Some(Search { info, grid, multiples: info.id.multiples()?, all })
    }

    /// Gives an encoded `block` of `weights` better steps, if there are any.
    pub fn improve(&mut self, weights: &[f32], importance: &[f32], block: &mut [u8]) {
        let minimum = (self.multiples.minima > 0).then(|| self.info.at(Part::Min));
        let scale = self.info.at(Part::Scale);
        let mut floats = [f16_at(block, scale), minimum.map_or(0.0, |at| f16_at(block, at))];
        let mut all = std::mem::take(&mut self.all);
        self.multiples.read(block, &mut all);
        let mut best = f32::INFINITY;
        for _ in 0..TURNS {
            let before = all.clone();
            let cost = self.best_multiples(floats, weights, importance, &mut all);
            // Never so where weights or importance are no numbers.
            let is_better = cost < best;
            if !is_better {
                all = before;
                break;
            }
            best = cost;
            put_f16(block, scale, floats[0]);
            if let Some(at) = minimum {
                put_f16(block, at, floats[1]);
            }
            self.multiples.write(&all, block);
            match self.least_squares(floats, weights, importance, &all) {
                Some(better) if better != floats => floats = better,
                _ => break,
            }
        }
        self.all = all;
    }

    /// Takes for each group the multiples around its own that cost least, of equal ones its own, else the lowest. The sum
    /// of the costs.
    fn best_multiples(&self, floats: Floats, weights: &[f32], importance: &[f32], all: &mut [[i16; 2]]) -> f32 {
        let around = |own: i16, (low, high): (i16, i16)| {
            own.saturating_sub(REACH).max(low)..=own.saturating_add(REACH).min(high)
        };
        let groups = weights.chunks(self.grid.group).zip(importance.chunks(self.grid.group));
        let mut sum = 0.0;
        for (own, (weights, importance)) in all.iter_mut().zip(groups) {
            let mut best = (self.cost(step(floats, *own), weights, importance), *own);
            for scale in around(own[0], self.multiples.scales) {
                for minimum in around(own[1], (0, self.multiples.minima)) {
                    let cost = self.cost(step(floats, [scale, minimum]), weights, importance);
                    if cost < best.0 {
                        best = (cost, [scale, minimum]);
                    }
                }
            }
            *own = best.1;
            sum += best.0;
        }
        sum
    }

    /// The squared errors of a group under a step, each times its importance.
    fn cost(&self, step: Step, weights: &[f32], importance: &[f32]) -> f32 {
        let mut sums = [0.0f32; LANES];
        match self.grid.levels {
            Levels::Even { lowest, count } if step.scale != 0.0 => {
                let (lowest, highest) = (f32::from(lowest), f32::from(lowest) + f32::from(count - 1));
                let inverse = 1.0 / step.scale;
                let groups = weights.as_chunks::<LANES>().0.iter().zip(importance.as_chunks::<LANES>().0);
                for (x, importance) in groups {
                    for lane in 0..LANES {
                        let level = nearest(((x[lane] + step.offset) * inverse).max(lowest).min(highest));
                        let error = level * step.scale - step.offset - x[lane];
                        sums[lane] += importance[lane] * (error * error);
                    }
                }
            }
            _ => {
                for (i, (&x, importance)) in weights.iter().zip(importance).enumerate() {
                    let error = self.grid.value(step, self.grid.nearest(step, x.into())) - x;
                    sums[i % LANES] += importance * (error * error);
                }
            }
        }
        sums.iter().sum()
    }

    /// The floats with the least squared error for the nearest codes and these multiples, as half floats; `None` where
    /// there are none.
    fn least_squares(&self, floats: Floats, weights: &[f32], importance: &[f32], all: &[[i16; 2]]) -> Option<Floats> {
        let [mut ss, mut sm, mut mm, mut sx, mut mx] = [0.0f64; 5];
        let groups = weights.chunks(self.grid.group).zip(importance.chunks(self.grid.group));
        for (own, (weights, importance)) in all.iter().zip(groups) {
            let step = step(floats, *own);
            for (&x, &w) in weights.iter().zip(importance) {
                let code = self.grid.nearest(step, x.into());
                let level = self.grid.value(Step { scale: 1.0, offset: 0.0, second: false }, code);
                let (s, m) = (f64::from(level) * f64::from(own[0]), -f64::from(own[1]));
                let (x, w) = (f64::from(x), f64::from(w));
                ss += w * (s * s);
                sm += w * (s * m);
                mm += w * (m * m);
                sx += w * (s * x);
                mx += w * (m * x);
            }
        }
        let determinant = ss * mm - sm * sm;
        let solved = match determinant > 0.0 {
            true => [(sx * mm - mx * sm) / determinant, (ss * mx - sm * sx) / determinant],
            false => [sx / ss, f64::from(floats[1])],
        };
        let halves = solved.map(|x| f16_to_f32(f32_to_f16(x as f32)));
        halves.iter().all(|x| x.is_finite()).then_some(halves)
    }
}

/// The step of a group.
fn step(floats: Floats, multiples: [i16; 2]) -> Step {
    Step { scale: floats[0] * f32::from(multiples[0]), offset: floats[1] * f32::from(multiples[1]), second: false }
}

/// The nearest integer, ties to even, of a small number: the sum has no bits for a fraction.
#[inline(always)]
fn nearest(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23
    (x + SHIFT) - SHIFT
}
