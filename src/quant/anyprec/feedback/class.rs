//! Codes, factors and shared tables of rows of one class, in turns.

use rayon::prelude::*;
use trine_formats::anyprec::scaled;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::descent::Descent;
use super::improve::{STRIP, values};
use super::refit::{Refit, Solver};
use super::weighed::Feedback;

/// How often codes are improved: more is slow, with the sums of a row made twice in each, and gains nothing on other
/// text.
const ROUNDS: usize = 1;

/// Rows that share tables.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// Their numbers in the matrix.
    pub rows: Vec<usize>,
    /// The shared tables in half precision, the narrowest width first.
    pub luts: Vec<Vec<u16>>,
    /// The factors of each row in half precision, `[row][width]`.
    pub scales: Vec<Vec<u16>>,
    /// The codes of each row, `[row][column]`.
    pub codes: Vec<Vec<u8>>,
    /// The errors of each row, `[row][width]`; with error feedback those at the outputs.
    pub errors: Vec<Vec<f64>>,
    /// The same of weights of zero.
    pub energies: Vec<f64>,
}

impl Class {
    /// The tables of a row, by its number in the class, as a run has them.
    pub fn tables(&self, at: usize) -> Vec<Vec<f64>> {
        let widths = self.luts.iter().zip(&self.scales[at]);
        widths.map(|(lut, &scale)| table_of(lut, scale)).collect()
    }
}

/// The table of a row with this factor.
fn table_of(lut: &[u16], scale: u16) -> Vec<f64> {
    lut.iter().map(|&c| half(scaled(scale, c))).collect()
}

/// Rows of a class that are gone through together.
struct Strip {
    first: usize,
    /// In the order of the factor.
    weights: Vec<f64>,
    codes: Vec<u8>,
}

/// `S^T H S` and `S^T H w` of every width, summed over rows with the squares of their factors and with these.
struct Sums(Vec<(Vec<f64>, Vec<f64>)>);

impl Sums {
    fn add(&mut self, other: &Sums) {
        for ((products, moments), (p, m)) in self.0.iter_mut().zip(&other.0) {
            products.iter_mut().zip(p).for_each(|(sum, x)| *sum += x);
            moments.iter_mut().zip(m).for_each(|(sum, x)| *sum += x);
        }
    }
}

fn half(bits: u16) -> f64 {
    f16_to_f32(bits).into()
}

/// A number in half precision, where that holds it.
fn rounded(x: f64) -> Option<u16> {
    let bits = f32_to_f16(x as f32);
    f16_to_f32(bits).is_finite().then_some(bits)
}

impl Feedback<'_> {
    /// How much of each column, in natural order, the columns after it cannot make up for: `1 / U_ii^2`.
    pub fn left_over(&self) -> Vec<f32> {
        let factor = &self.metric.factor;
        let mut all = vec![0.0; factor.columns()];
        for (i, &j) in factor.order().iter().enumerate() {
            let pivot = factor.pivot(i);
            all[j] = (1.0 / (pivot * pivot)) as f32;
        }
        all
    }

    /// Chooses new codes, factors and tables for the rows of a class; `weights` has those of a row of the matrix.
    pub fn improve_class<'w>(&self, class: &mut Class, weights: impl Fn(usize) -> &'w [f32] + Sync) {
        let order = self.metric.factor.order();
        let columns = order.len();
        let mut strips: Vec<Strip> = (0..class.rows.len())
            .step_by(STRIP)
            .map(|first| {
                let own = class.rows[first..].iter().take(STRIP);
                let weights: Vec<f64> =
                    own.flat_map(|&i| order.iter().map(|&j| f64::from(weights(i)[j])).collect::<Vec<_>>()).collect();
                Strip { first, codes: vec![0; weights.len()], weights }
            })
            .collect();
        strips.par_iter_mut().for_each(|s| {
            let count = s.weights.len() / columns;
            let tables: Vec<_> = (s.first..s.first + count).map(|at| class.tables(at)).collect();
            self.pass(&tables, &s.weights, &mut s.codes);
        });
        for round in 0..=ROUNDS {
            self.fit_tables(class, &strips);
            let now = &*class;
            let fitted = strips.par_iter_mut().map(|s| self.fit_rows(now, s, round < ROUNDS));
            let fitted: Vec<_> = fitted.collect();
            let rows = fitted.into_iter().flatten();
            (class.scales, (class.errors, class.energies)) =
                rows.map(|(scales, errors, energy)| (scales, (errors, energy))).unzip();
        }
        for (at, codes) in class.codes.iter_mut().enumerate() {
            let own = &strips[at / STRIP].codes[at % STRIP * columns..][..columns];
            order.iter().zip(own).for_each(|(&j, &code)| codes[j] = code);
        }
    }

    /// Fits the tables to the codes and factors of all rows.
    fn fit_tables(&self, class: &mut Class, strips: &[Strip]) {
        let now = &*class;
        let sums: Vec<Sums> = strips.par_iter().map(|s| self.sum_up(now, s)).collect();
        let Some((first, rest)) = sums.split_first() else {
            return;
        };
        let mut all = Sums(first.0.clone());
        // In order, whatever the threads did.
        rest.iter().for_each(|s| all.add(s));
        let mut solver = Solver::default();
        for ((products, moments), lut) in all.0.iter().zip(&mut class.luts) {
            let mut table: Vec<f64> = lut.iter().map(|&c| half(c)).collect();
            solver.solve(products, moments, &mut table);
            for (bits, centroid) in lut.iter_mut().zip(table) {
                *bits = rounded(centroid).unwrap_or(*bits);
            }
        }
    }

    /// The sums of each row of a strip for its codes.
    fn rows(&self, strip: &Strip, count: usize) -> Vec<Refit<'_>> {
        let rows = strip.weights.len() / self.metric.factor.columns();
        let mut rows: Vec<_> = (0..rows).map(|_| Refit::new(self)).collect();
        Refit::sum_up_all(&mut rows, &strip.weights, &strip.codes, count);
        rows
    }

    fn sum_up(&self, class: &Class, strip: &Strip) -> Sums {
        let count = class.luts.last().map_or(0, Vec::len);
        let empty = |lut: &Vec<u16>| (vec![0.0; lut.len() * lut.len()], vec![0.0; lut.len()]);
        let mut sums = Sums(class.luts.iter().map(empty).collect());
        for (at, refit) in self.rows(strip, count).iter_mut().enumerate() {
            let widths = sums.0.iter_mut().zip(&class.scales[strip.first + at]);
            for ((products, moments), &scale) in widths.rev() {
                let (p, m) = refit.sums(moments.len());
                let scale = half(scale);
                products.iter_mut().zip(p).for_each(|(sum, x)| *sum += scale * scale * x);
                moments.iter_mut().zip(m).for_each(|(sum, x)| *sum += scale * x);
            }
        }
        sums
    }

    /// Fits the factors of rows to their codes and tables, and returns them with the errors; then looks for better codes,
    /// where it should.
    fn fit_rows(&self, class: &Class, strip: &mut Strip, descend: bool) -> Vec<(Vec<u16>, Vec<f64>, f64)> {
        let columns = self.metric.factor.columns();
        let count = class.luts.last().map_or(0, Vec::len);
        let plain = values(&class.luts);
        let mut descent = Descent::default();
        let mut refits = self.rows(strip, count);
        let rows = refits.iter_mut().zip(strip.codes.chunks_exact_mut(columns));
        let fitted = rows.enumerate().map(|(at, (refit, codes))| {
            let energy = refit.energy();
            let mut scales = class.scales[strip.first + at].clone();
            let (mut tables, mut errors) = (vec![Vec::new(); plain.len()], vec![0.0; plain.len()]);
            for (b, table) in plain.iter().enumerate().rev() {
                refit.sums(table.len());
                scales[b] = refit.factor(table).and_then(rounded).unwrap_or(scales[b]);
                tables[b] = table_of(&class.luts[b], scales[b]);
                errors[b] = refit.error(energy, &tables[b]);
            }
            if descend {
                descent.row(self, refit, &tables, codes);
            }
            (scales, errors, energy)
        });
        fitted.collect()
    }
}
