//! Neighbouring rows that become points for pairs of weights: two columns are rounded together.
//!
//! The scales are the encoder's, with the diagonal of the Hessian as importance. Two columns, which the order of the
//! factor keeps side by side, become the point whose errors cost least once all later columns have made up for them;
//! then each feeds its error back, as if it had been rounded by itself.

use trine_formats::types::grid::{Pairs, Step};
use trine_formats::types::{EncodeFn, TypeInfo};

use super::factor::Factor;
use super::rows::{Block, Strip, steps_of_row};

/// Columns that are chosen together.
pub const PAIR: usize = 2;

/// Rows of one width that become one type, whose columns are chosen two at a time.
pub struct Paired<'a> {
    factor: &'a Factor,
    info: &'static TypeInfo,
    pairs: &'static Pairs,
    encode: EncodeFn,
    /// The steps of all groups, row after row.
    steps: Vec<Step>,
    /// The points that were chosen, row after row.
    chosen: Vec<u8>,
}

impl<'a> Paired<'a> {
    /// No rows yet.
    pub fn new(info: &'static TypeInfo, pairs: &'static Pairs, encode: EncodeFn, factor: &'a Factor) -> Paired<'a> {
        Paired { factor, info, pairs, encode, steps: Vec::new(), chosen: Vec::new() }
    }
}

/// The point with the least `|(w - q) U_B^-1|^2`, `U_B` being the two columns' block of `U`; of equal ones the first.
fn best(pairs: &Pairs, step: Step, weights: [f64; PAIR], upper: [[f64; PAIR]; PAIR]) -> u8 {
    let (mut best, mut least) = (0, f64::INFINITY);
    for point in 0..pairs.points.len() as u8 {
        let [q, r] = pairs.values(step, point).map(f64::from);
        let first = (weights[0] - q) / upper[0][0];
        let second = (weights[1] - first * upper[0][1] - r) / upper[1][1];
        let cost = first * first + second * second;
        if cost < least {
            (best, least) = (point, cost);
        }
    }
    best
}

impl Strip for Paired<'_> {
    fn push(&mut self, weights: &[f32], blocks: &mut [u8]) {
        (self.encode)(weights, Some(self.factor.importance()), blocks);
        let before = self.steps.len();
        self.steps.resize(before + weights.len() / self.pairs.group, Step::default());
        self.chosen.resize(self.chosen.len() + weights.len() / PAIR, 0);
        let steps = &mut self.steps[before..];
        steps_of_row(self.info, blocks, steps, self.pairs.group, |block, steps| self.pairs.steps(block, steps));
    }

    fn round(&mut self, row: usize, block: &mut Block<'_>) {
        let columns = self.factor.columns();
        for (number, pair) in block.order.as_chunks::<PAIR>().0.iter().enumerate() {
            let (i, column) = (number * PAIR, row * columns + pair[0]);
            let step = self.steps[column / self.pairs.group];
            let point = best(self.pairs, step, [block.weights[i], block.weights[i + 1]], block.upper(i));
            for (j, value) in self.pairs.values(step, point).into_iter().enumerate() {
                block.feed(i + j, value.into());
            }
            self.chosen[column / PAIR] = point;
        }
    }

    fn write(&self, out: &mut [u8]) {
        let per_row = self.factor.columns() / self.info.block;
        let rows = out.chunks_exact_mut(self.info.head + per_row * self.info.bytes);
        let blocks = rows.flat_map(|row| row[self.info.head..].chunks_exact_mut(self.info.bytes));
        for (block, points) in blocks.zip(self.chosen.chunks_exact(self.info.block / PAIR)) {
            self.pairs.place(points, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use trine_formats::types::TypeId;

    use super::*;
    use crate::quant::gptq::tests::Generator;

    /// The error of the first column counts once the second has made up for it.
    #[test]
    fn no_other_point_costs_less_once_errors_are_fed_back() {
        let pairs = TypeId::IQ2_KL.pairs().unwrap();
        let step = Step { scale: 0.5, ..Step::default() };
        let mut g = Generator(3);
        for _ in 0..200 {
            let mut next = || g.below(81) as f64 - 40.0;
            let (weights, upper) = ([next(), next()], [[1.5, next() / 20.0], [0.0, 1.25]]);
            let cost = |point: u8| {
                let values = pairs.values(step, point).map(f64::from);
                let [a, b] = [weights[0] - values[0], weights[1] - values[1]];
                // The row vector times the inverse of the triangle.
                let a = a / upper[0][0];
                let b = (b - a * upper[0][1]) / upper[1][1];
                a * a + b * b
            };
            let chosen = cost(best(pairs, step, weights, upper));
            assert!((0..32).all(|point| cost(point) >= chosen), "{weights:?} {upper:?}");
        }
    }
}
