//! New codes and tables for rows, in turns.

use trine_formats::types::num::f16_to_f32;

use super::coded::Coded;
use super::descent::Descent;
use super::refit::Refit;
use super::weighed::Feedback;

/// How often codes are improved and tables are fitted to them, once errors were fed back.
const ROUNDS: usize = 4;
/// Rows that a thread takes together: they share the reading of the triangle.
pub const STRIP: usize = 8;

impl Feedback<'_> {
    /// Chooses new codes and tables for neighbouring rows, whose weights are `weights`.
    pub fn improve(&self, rows: &mut [Coded], weights: &[f32]) {
        let order = self.metric.factor.order();
        let in_order: Vec<f64> =
            weights.chunks_exact(order.len()).flat_map(|row| order.iter().map(|&j| f64::from(row[j]))).collect();
        let mut tables: Vec<Vec<Vec<f64>>> = rows.iter().map(|row| values(&row.luts)).collect();
        let mut codes = vec![0; in_order.len()];
        self.pass(&tables, &in_order, &mut codes);
        let (mut refit, mut descent) = (Refit::new(self), Descent::default());
        let each = in_order.chunks_exact(order.len()).zip(codes.chunks_exact_mut(order.len()));
        for ((row, tables), (weights, codes)) in rows.iter_mut().zip(&mut tables).zip(each) {
            refit.row(weights, codes, row, tables);
            for _ in 0..ROUNDS {
                descent.row(self, &refit, tables, codes);
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
pub(super) fn values(luts: &[Vec<u16>]) -> Vec<Vec<f64>> {
    let value = |&bits: &u16| f64::from(f16_to_f32(bits));
    luts.iter().map(|lut| lut.iter().map(value).collect()).collect()
}
