//! The scale and the half of a table with which a group of weights errs least.

use super::levels::{POINTS_OF_PAIRS as COUNT, Points};
use super::places::Book;

/// Sums that run side by side, each over every eighth weight.
const LANES: usize = 8;
/// Weights below this count as zero.
const ZERO_BELOW: f32 = 1e-15;
/// Levels that the largest weight is put on, as parts of the lowest and of the highest one: beyond 1 codes have room to
/// spare, below it large weights are cut.
const PARTS: [f32; 12] = [0.66, 0.72, 0.78, 0.82, 0.86, 0.9, 0.935, 0.97, 1.0, 1.04, 1.1, 1.18];
/// Turns in which codes follow the scale and the scale the codes.
const TURNS: usize = 2;

/// A group: its weights, and what the squared error of each of them weighs.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub x: &'a [f32],
    pub weights: &'a [f32],
}

/// The scale of a group by itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Fit {
    pub scale: f32,
    /// How fast the error grows with the square of what the scale is off.
    pub curvature: f32,
    pub second: bool,
}

/// The best scale so far, and how much of the weighted squares its levels explain.
#[derive(Default)]
struct Best {
    fit: Fit,
    gain: f32,
}

impl Best {
    /// Takes the scale of least squares of these sums, if it is better.
    fn take(&mut self, second: bool, (qx, qq): Sums) {
        // Never so where weights are no numbers.
        if qq > 0.0 && qx * qx > self.gain * qq {
            self.gain = qx * qx / qq;
            self.fit = Fit { scale: qx / qq, curvature: qq, second };
        }
    }
}

/// The weighted sums over a group of levels and weights, and of squared levels.
type Sums = (f32, f32);

impl Book {
    /// True if groups choose between two halves of a table.
    pub fn has_halves(&self) -> bool {
        matches!(self, Book::Levels(_))
    }

    /// The lowest and the highest level.
    fn ends(&self, second: bool) -> [f32; 2] {
        match self {
            Book::Levels(halves) => halves[usize::from(second)].ends(),
            Book::Points(points) => {
                let levels = points.as_flattened().iter();
                levels.fold([0.0f32; 2], |[low, high], level| [level.min(low), level.max(high)])
            }
        }
    }

    /// Calls `f` with eight weights, what their errors weigh and the levels nearest to them under a scale, one eighth
    /// after the other.
    #[inline(always)]
    fn eights(
        &self,
        second: bool,
        inverse: f32,
        group: Group<'_>,
        mut f: impl FnMut(&[f32; LANES], &[f32; LANES], [f32; LANES]),
    ) {
        let all = group.x.as_chunks::<LANES>().0.iter().zip(group.weights.as_chunks::<LANES>().0);
        match self {
            Book::Levels(halves) => {
                let nearest = &halves[usize::from(second)];
                for (x, weights) in all {
                    f(x, weights, x.map(|x| nearest.of(x * inverse)));
                }
            }
            Book::Points(points) => {
                for (x, weights) in all {
                    let mut levels = [0.0; LANES];
                    let pairs = x.as_chunks::<2>().0.iter().zip(weights.as_chunks::<2>().0);
                    for (levels, (x, weights)) in levels.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
                        let point = nearest_point(points, x.map(|x| x * inverse), *weights);
                        *levels = points.map(|levels| levels[usize::from(point)]);
                    }
                    f(x, weights, levels);
                }
            }
        }
    }

    /// The sums with the levels nearest under a scale.
    fn sums(&self, second: bool, inverse: f32, group: Group<'_>) -> Sums {
        let (mut qx, mut qq) = ([0.0; LANES], [0.0; LANES]);
        self.eights(second, inverse, group, |x, weights, levels| {
            for lane in 0..LANES {
                let weighted = weights[lane] * levels[lane];
                qx[lane] += weighted * x[lane];
                qq[lane] += weighted * levels[lane];
            }
        });
        (sum(qx), sum(qq))
    }

    /// The weighted squared error under a scale, and the sums with its levels.
    pub fn error(&self, second: bool, scale: f32, group: Group<'_>) -> (f32, Sums) {
        let (mut errors, mut qx, mut qq) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        self.eights(second, inverse, group, |x, weights, levels| {
            for lane in 0..LANES {
                let weighted = weights[lane] * levels[lane];
                let error = scale * levels[lane] - x[lane];
                errors[lane] += weights[lane] * (error * error);
                qx[lane] += weighted * x[lane];
                qq[lane] += weighted * levels[lane];
            }
        });
        (sum(errors), (sum(qx), sum(qq)))
    }

    /// The best of many scales of both signs, for each of which the levels are the nearest ones.
    pub fn fit(&self, group: Group<'_>) -> Fit {
        let extreme = group.x.iter().fold(0.0f32, |m, x| if x.abs() > m.abs() { *x } else { m });
        if extreme.abs() < ZERO_BELOW {
            return Fit::default();
        }
        let halves = if self.has_halves() { &[false, true][..] } else { &[false] };
        let mut best = Best::default();
        for &second in halves {
            for end in self.ends(second) {
                for part in PARTS {
                    best.take(second, self.sums(second, part * end / extreme, group));
                }
            }
        }
        for _ in 0..TURNS {
            let Fit { scale, second, .. } = best.fit;
            best.take(second, self.sums(second, 1.0 / scale, group));
        }
        best.fit
    }
}

/// The sum of eight, always in the same order.
fn sum(x: [f32; LANES]) -> f32 {
    ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]))
}

/// The number of the point nearest to two weights, of equal ones the first.
#[inline(always)]
pub(super) fn nearest_point(points: &Points, x: [f32; 2], weights: [f32; 2]) -> u8 {
    let costs: [f32; COUNT] = std::array::from_fn(|i| {
        let [a, b] = [x[0] - points[0][i], x[1] - points[1][i]];
        weights[0] * (a * a) + weights[1] * (b * b)
    });
    let mut least = [f32::INFINITY; LANES];
    for costs in costs.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            least[lane] = if costs[lane] < least[lane] { costs[lane] } else { least[lane] };
        }
    }
    let least = least.into_iter().fold(f32::INFINITY, f32::min);
    // None is where weights are no numbers.
    costs.iter().position(|cost| *cost == least).unwrap_or(0) as u8
}
