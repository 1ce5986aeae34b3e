//! The rows of a matrix that share tables, and the choice of each.

use crate::quant::anyprec::opened::RowWeights;

/// How a matrix is gone through: its rows, with what their errors are weighed with.
pub struct Rows<'a> {
    pub columns: usize,
    pub weights: &'a [f32],
    pub sensitivities: RowWeights<'a>,
}

impl Rows<'_> {
    pub fn count(&self) -> usize {
        self.weights.len() / self.columns.max(1)
    }

    pub fn row(&self, i: usize) -> &[f32] {
        &self.weights[i * self.columns..(i + 1) * self.columns]
    }
}

/// The choice of a row: a class, and a factor for each width.
#[derive(Clone, Default, Debug)]
pub struct Taken {
    pub class: usize,
    pub scales: Vec<f64>,
}
