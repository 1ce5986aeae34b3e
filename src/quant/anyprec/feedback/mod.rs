//! Error feedback for all widths of a code at once.
//!
//! A row has an error at every width `b`, `(Q_b - W) H (Q_b - W)^T`, and GPTQ's way to make it small (see
//! [`crate::quant::gptq`]) changes the weights that are not rounded yet. But the code of a width is the beginning of
//! the next width's, and what one width would have a weight become is not what the others would: at 3 bits errors are
//! fed back that are larger than all of the steps of 6 bits. So every width feeds back its own errors, in weights of
//! its own, and the columns' codes are chosen for all of them together:
//!
//! - in the order of the factor, column `i` gets the code whose beginnings cost least, `sum over b of 3^b (w_b,i -
//!   T_b[code_b])^2`, where `w_b` are the weights as the errors of width `b` have left them, and the lowest code of
//!   equals; then each width feeds back its error (`pass`);
//! - with the codes as they are, the centroids of each width are those with the least error at the outputs, the
//!   solution of `S^T H S t = S^T H w` with `S` the clusters as columns of ones (`refit`), rounded to half precision.
//!
//! Both are done twice, from the tables of clusters without feedback, with the diagonal of `H` as sensitivities. Errors
//! of neighbouring widths are one to four (in squares); a share of `4^b` would let them all rise alike, and the widest
//! decide. With `3^b` the narrow ones, which need it most, gain more than the others: `docs/any-precision.md` has what
//! was measured.

mod metrics;
mod pass;
mod refit;

use trine_formats::types::num::f16_to_f32;

use super::cluster::Nesting;
use crate::kernels::Isa;
use crate::quant::gptq::{Factor, HessianFault, HessianFile, Options};
pub use metrics::Metrics;
use refit::Refit;

/// How much more an error counts than the same at one bit less.
const SHARE: f64 = 3.0;
/// How often codes are chosen and tables are fitted to them.
const PASSES: usize = 2;
/// Rows that a thread takes together: they share the reading of the triangle.
pub const STRIP: usize = 8;

/// What the weights that read one input need to know of it.
pub struct Metric {
    factor: Factor,
    /// `H` with what was added to its diagonal, in panels, rows and columns in the order of the factor.
    hessian: Vec<f64>,
}

impl Metric {
    /// Reads the sums of input number `input` and factors them, on the current rayon pool.
    ///
    /// # Errors
    /// Sums that no text can have.
    pub fn read(file: &HessianFile, input: usize, options: &Options, isa: Isa) -> Result<Metric, HessianFault> {
        let (factor, hessian) = Factor::read_with_hessian(file, input, options, isa)?;
        Ok(Metric { factor, hessian })
    }

    #[cfg(test)]
    pub fn new(sums: &[f64], columns: usize, tokens: u64, isa: Isa) -> Metric {
        let factor = Factor::new(sums, columns, tokens, &Options::default(), isa);
        let factor = factor.expect("a positive definite matrix");
        let hessian = factor.hessian(sums, tokens);
        Metric { factor, hessian }
    }

    /// How much the columns matter by themselves.
    pub fn importance(&self) -> &[f32] {
        self.factor.importance()
    }

    /// The share of the mean of the diagonal that was added to it.
    pub fn damp(&self) -> f64 {
        self.factor.damp()
    }
}

/// A row on its way: a code for each column, and the tables of all widths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coded {
    /// In natural order.
    pub codes: Vec<u8>,
    /// In half precision, narrowest width first.
    pub luts: Vec<Vec<u16>>,
    /// The error at every width, `(Q - W) H (Q - W)^T`.
    pub errors: Vec<f64>,
    /// `W H W^T`.
    pub energy: f64,
}

/// Error feedback for rows that read one input.
pub struct Feedback<'a> {
    metric: &'a Metric,
    isa: Isa,
    /// How much the error of each width counts; 0 of those without a table in the file.
    shares: Vec<f64>,
}

impl<'a> Feedback<'a> {
    /// For codes of these widths, of which those in `bits` have tables.
    pub fn new(metric: &'a Metric, nesting: Nesting, bits: &[u8], isa: Isa) -> Feedback<'a> {
        let widths = nesting.widths();
        let share = |b: u8| match bits.contains(&b) {
            true => (nesting.seed_bits..b).fold(1.0, |share, _| share * SHARE),
            false => 0.0,
        };
        Feedback { metric, isa, shares: widths.map(share).collect() }
    }

    /// Chooses new codes and tables for neighbouring rows, whose weights are `weights`.
    pub fn improve(&self, rows: &mut [Coded], weights: &[f32]) {
        let order = self.metric.factor.order();
        let in_order: Vec<f64> =
            weights.chunks_exact(order.len()).flat_map(|row| order.iter().map(|&j| f64::from(row[j]))).collect();
        let mut tables: Vec<Vec<Vec<f64>>> = rows.iter().map(|row| values(&row.luts)).collect();
        let mut codes = vec![0; in_order.len()];
        let mut refit = Refit::new(self);
        for _ in 0..PASSES {
            self.pass(&tables, &in_order, &mut codes);
            let each = in_order.chunks_exact(order.len()).zip(codes.chunks_exact(order.len()));
            for ((row, tables), (weights, codes)) in rows.iter_mut().zip(&mut tables).zip(each) {
                refit.row(weights, codes, row, tables);
            }
        }
        for (row, codes) in rows.iter_mut().zip(codes.chunks_exact(order.len())) {
            for (&j, &code) in order.iter().zip(codes) {
                row.codes[j] = code;
            }
        }
    }
}

/// Tables as they are stored.
fn values(luts: &[Vec<u16>]) -> Vec<Vec<f64>> {
    let value = |&bits: &u16| f64::from(f16_to_f32(bits));
    luts.iter().map(|lut| lut.iter().map(value).collect()).collect()
}

#[cfg(test)]
mod tests;
