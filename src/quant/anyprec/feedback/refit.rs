//! The centroids with the least error at the outputs, the codes being given.
//!
//! With `S` the matrix that has a one where column `j` has code `c`, the error of centroids `t` is `w^T H w - 2 t^T S^T
//! H w + t^T (S^T H S) t`. Sums over the codes of the widest width are made once; those of a narrower one are sums of
//! these, because its codes are their beginnings. The systems are solved by conjugate gradients from the centroids that
//! are there, scaled by the diagonal: a fixed number of steps, none of which makes the error larger.

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::coded::Coded;
use super::weighed::Feedback;
use crate::linalg::COLUMNS;

/// The most steps of a solution.
const STEPS: usize = 16;
/// Where the residual has become so small a part of what it was, squared, there is nothing left to gain.
const ENOUGH: f64 = 1e-16;

/// Fits tables, with its memory.
pub struct Refit<'a> {
    feedback: &'a Feedback<'a>,
    /// For every panel and every code the sum of the code's rows, `[panel][code]`.
    sums: Vec<[f64; COLUMNS]>,
    /// `H w`, in panels.
    outputs: Vec<[f64; COLUMNS]>,
    /// `S^T H S`.
    products: Vec<f64>,
    /// `S^T H w`.
    moments: Vec<f64>,
    /// The codes that `sums` are of, and those that `products` and `moments` are of.
    codes: usize,
    count: usize,
    /// `w^T H w`.
    energy: f64,
    solver: Solver,
}

impl<'a> Refit<'a> {
    pub fn new(feedback: &'a Feedback<'a>) -> Refit<'a> {
        Refit {
            feedback,
            sums: Vec::new(),
            outputs: Vec::new(),
            products: Vec::new(),
            moments: Vec::new(),
            codes: 0,
            count: 0,
            energy: 0.0,
            solver: Solver::default(),
        }
    }

    /// Fits the tables of a row with these `weights` and `codes`, both in the order of the factor. `tables` become what
    /// `row` stores.
    pub fn row(&mut self, weights: &[f64], codes: &[u8], row: &mut Coded, tables: &mut [Vec<f64>]) {
        let count = tables.last().map_or(0, Vec::len);
        row.energy = self.sum_up(weights, codes, count);
        row.errors.resize(tables.len(), 0.0);
        let widths = tables.iter_mut().zip(&mut row.luts).zip(&mut row.errors);
        for ((table, lut), error) in widths.rev() {
            self.join_to(table.len());
            let count = self.count;
            let products = &self.products[..count * count];
            self.solver.solve(products, &self.moments[..count], table);
            for (centroid, bits) in table.iter_mut().zip(lut) {
                let half = f32_to_f16(*centroid as f32);
                // What half precision does not hold stays what it was.
                *bits = if f16_to_f32(half).is_finite() { half } else { *bits };
                *centroid = f16_to_f32(*bits).into();
            }
            *error = self.error(row.energy, table);
        }
    }

    /// Fills the sums of `count` codes; `w^T H w`.
    fn sum_up(&mut self, weights: &[f64], codes: &[u8], count: usize) -> f64 {
        Refit::sum_up_all(std::slice::from_mut(self), weights, codes, count);
        self.energy
    }

    /// Fills the sums of `count` codes of several rows, which share the reading of `H`.
    pub fn sum_up_all(rows: &mut [Refit<'_>], weights: &[f64], codes: &[u8], count: usize) {
        let Some(metric) = rows.first().map(|row| row.feedback.metric) else {
            return;
        };
        let columns = metric.factor.columns();
        let panels = metric.hessian.chunks_exact(columns * COLUMNS);
        rows.iter_mut().for_each(|row| row.begin(panels.len(), count));
        for (p, panel) in panels.enumerate() {
            let each = rows.iter_mut().zip(weights.chunks_exact(columns)).zip(codes.chunks_exact(columns));
            each.for_each(|((row, weights), codes)| row.add(p, panel, weights, codes));
        }
    }

    /// Empties the sums of `count` codes.
    fn begin(&mut self, panels: usize, count: usize) {
        (self.count, self.codes, self.energy) = (count, count, 0.0);
        self.products.clear();
        self.products.resize(count * count, 0.0);
        self.moments.clear();
        self.moments.resize(count, 0.0);
        self.sums.clear();
        self.sums.resize(panels * count, [0.0; COLUMNS]);
        self.outputs.clear();
    }

    /// Adds panel number `p` of `H` to the sums, after those before it.
    fn add(&mut self, p: usize, panel: &[f64], weights: &[f64], codes: &[u8]) {
        let count = self.count;
        let sums = &mut self.sums[p * count..][..count];
        let mut outputs = [0.0; COLUMNS];
        let rows = panel.as_chunks::<COLUMNS>().0.iter();
        for ((row, &code), &weight) in rows.zip(codes).zip(weights) {
            let sums = &mut sums[usize::from(code)];
            for ((sum, output), &h) in sums.iter_mut().zip(&mut outputs).zip(row) {
                *sum += h;
                *output += h * weight;
            }
        }
        let start = p * COLUMNS;
        let own = codes[start..].iter().zip(&weights[start..]).zip(outputs);
        for (lane, ((&code, &weight), output)) in own.take(COLUMNS).enumerate() {
            let code = usize::from(code);
            self.energy += weight * output;
            self.moments[code] += output;
            let products = &mut self.products[code * count..][..count];
            for (product, sums) in products.iter_mut().zip(&*sums) {
                *product += sums[lane];
            }
        }
        self.outputs.push(outputs);
    }

    /// `(Q - W) H` of the row that was fitted last, with the codes that it had and a table of one of its widths; in
    /// panels.
    pub fn slope(&self, table: &[f64], slope: &mut Vec<[f64; COLUMNS]>) {
        let count = self.codes;
        // Codes that share a beginning, and so a centroid.
        let mates = (count / table.len()).max(1);
        slope.clear();
        for (sums, outputs) in self.sums.chunks_exact(count.max(1)).zip(&self.outputs) {
            let mut panel = outputs.map(|output| -output);
            for (sums, centroid) in sums.chunks_exact(mates).zip(table) {
                for sum in sums {
                    for (to, sum) in panel.iter_mut().zip(sum) {
                        *to += centroid * sum;
                    }
                }
            }
            slope.push(panel);
        }
    }

    /// `S^T H S` and `S^T H w` for the beginnings of codes, of which there are so many: no more than before.
    pub fn sums(&mut self, count: usize) -> (&[f64], &[f64]) {
        self.join_to(count);
        (&self.products[..count * count], &self.moments[..count])
    }

    /// The factor of a table with the least error, for as many codes as there are sums of; `None` where all are alike.
    pub fn factor(&self, table: &[f64]) -> Option<f64> {
        let rows = self.products.chunks_exact(table.len());
        let (square, moment) = table
            .iter()
            .zip(rows)
            .zip(&self.moments)
            .fold((0.0, 0.0), |sum, ((t, row), moment)| (sum.0 + t * dot(row, table), sum.1 + t * moment));
        (square > 0.0).then_some(moment / square).filter(|f| f.is_finite())
    }

    /// Joins the sums until they are those of `count` codes.
    fn join_to(&mut self, count: usize) {
        while self.count > count {
            self.join(self.count);
            self.count /= 2;
        }
    }

    /// Joins the sums of `count` codes in pairs.
    fn join(&mut self, count: usize) {
        let half = count / 2;
        for i in 0..half {
            self.moments[i] = self.moments[2 * i] + self.moments[2 * i + 1];
            for j in 0..half {
                let four = [0, 1].map(|r| {
                    let at = (2 * i + r) * count + 2 * j;
                    self.products[at] + self.products[at + 1]
                });
                // What is still to be read lies behind.
                self.products[i * half + j] = four[0] + four[1];
            }
        }
    }

    /// `w^T H w`.
    pub fn energy(&self) -> f64 {
        self.energy
    }

    /// The error at the outputs with this table, for as many codes as there are sums of.
    pub fn error(&self, energy: f64, table: &[f64]) -> f64 {
        let rows = self.products.chunks_exact(table.len());
        let terms = table.iter().zip(rows).zip(&self.moments);
        let change = terms.fold(0.0, |sum, ((t, row), moment)| sum + t * (dot(row, table) - 2.0 * moment));
        (energy + change).max(0.0)
    }
}

/// Sums that are made side by side.
const LANES: usize = 8;

/// The sum of products, of every eighth by themselves and then of these in order.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    lanes.into_iter().chain(rest).fold(0.0, |sum, x| sum + x)
}

/// Conjugate gradients, with their memory.
#[derive(Default)]
pub struct Solver {
    residual: Vec<f64>,
    direction: Vec<f64>,
    image: Vec<f64>,
}

impl Solver {
    /// Improves `x` as a solution of `a x = b`, `a` symmetric and positive definite but for rows of zeros, whose
    /// elements of `x` stay what they are.
    pub fn solve(&mut self, a: &[f64], b: &[f64], x: &mut [f64]) {
        let n = x.len();
        let scaled = |i: usize, r: f64| match a[i * n + i] {
            d if d > 0.0 => r / d,
            _ => 0.0,
        };
        let rows = a.chunks_exact(n);
        self.residual.clear();
        self.residual.extend(rows.clone().zip(b).map(|(row, b)| b - dot(row, x)));
        self.direction.clear();
        let residual = self.residual.iter().enumerate();
        self.direction.extend(residual.map(|(i, &r)| scaled(i, r)));
        let mut size = dot(&self.residual, &self.direction);
        let least = size * ENOUGH;
        for _ in 0..STEPS.min(n) {
            self.image.clear();
            self.image.extend(rows.clone().map(|row| dot(row, &self.direction)));
            let step = size / dot(&self.direction, &self.image);
            if !(size > least && step.is_finite()) {
                break;
            }
            for (x, d) in x.iter_mut().zip(&self.direction) {
                *x += step * d;
            }
            for (r, image) in self.residual.iter_mut().zip(&self.image) {
                *r -= step * image;
            }
            let residual = self.residual.iter().enumerate();
            let now = residual.fold(0.0, |sum, (i, &r)| sum + r * scaled(i, r));
            let turn = now / size;
            size = now;
            for (i, (d, &r)) in self.direction.iter_mut().zip(&self.residual).enumerate() {
                *d = scaled(i, r) + turn * *d;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_solved_and_rows_of_zeros_left_alone() {
        let a = [4.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 3.0];
        let mut x = [9.0, 7.0, -9.0];
        Solver::default().solve(&a, &[5.0, 0.0, 4.0], &mut x);
        assert_eq!(x[1], 7.0);
        assert!((x[0] - 1.0).abs() < 1e-12 && (x[2] - 1.0).abs() < 1e-12, "{x:?}");
    }
}
