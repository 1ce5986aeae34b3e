//! The tables of an any-precision matrix on their way: every row has the values of its codes.

use rayon::prelude::*;
use trine_formats::anyprec::ApView;
use trine_formats::types::num::{f16_at, put_f16};

use super::moving::{Movable, Moving, Step};

/// An any-precision matrix whose codes and sparse weights stay.
pub struct Tables {
    view: ApView,
    /// The tables, `[rows][entries]` in half precision.
    values: Vec<u8>,
    moving: Vec<Moving>,
}

impl Tables {
    /// Those of a matrix at one width.
    pub fn new(view: ApView) -> Tables {
        let mut moving = Vec::new();
        for table in view.lut.chunks_exact(view.lut_bytes().max(2)) {
            let first: Vec<f32> = (0..table.len() / 2).map(|i| f16_at(table, 2 * i)).collect();
            // Values near zero move as far as the others.
            let squares = first.iter().fold(0.0, |s, &v| s + f64::from(v) * f64::from(v));
            let unit = (squares / first.len() as f64).sqrt() as f32;
            moving.extend(first.into_iter().map(|first| Moving::new(first, unit)));
        }
        Tables { values: view.lut.to_vec(), moving, view }
    }
}

/// The weights of row number `row` with these values of its codes.
fn decode(view: &ApView, row: usize, entries: &[usize], values: &[u8], weights: &mut [f32]) {
    weights.iter_mut().zip(entries).for_each(|(w, &entry)| *w = f16_at(values, 2 * entry));
    if let Some(sparse) = &view.sparse {
        sparse.row(row).for_each(|(column, weight)| weights[column] = weight);
    }
}

impl Movable for Tables {
    fn len(&self) -> usize {
        self.moving.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.values
    }

    fn decode(&self, weights: &mut [f32]) {
        let Tables { view, values, .. } = self;
        let rows = values.par_chunks_exact(view.lut_bytes()).zip(weights.par_chunks_exact_mut(view.columns));
        rows.enumerate().for_each(|(row, (values, weights))| decode(view, row, &view.entries(row), values, weights));
    }

    fn advance(&mut self, gradients: &[f32], step: Step, weights: &mut [f32]) {
        let Tables { view, values, moving } = self;
        let bytes = view.lut_bytes();
        let tables = values.par_chunks_exact_mut(bytes).zip(moving.par_chunks_exact_mut(bytes / 2));
        let plain = gradients.par_chunks_exact(view.columns).zip(weights.par_chunks_exact_mut(view.columns));
        tables.zip(plain).enumerate().for_each(|(row, ((values, moving), (gradients, weights)))| {
            let entries = view.entries(row);
            let mut slopes = vec![0f64; moving.len()];
            for (&entry, &gradient) in entries.iter().zip(gradients) {
                slopes[entry] += f64::from(gradient);
            }
            // Weights that are stored as they are do not depend on the table.
            if let Some(sparse) = &view.sparse {
                sparse.row(row).for_each(|(column, _)| slopes[entries[column]] -= f64::from(gradients[column]));
            }
            for (i, (moving, slope)) in moving.iter_mut().zip(slopes).enumerate() {
                let before = f16_at(values, 2 * i);
                put_f16(values, 2 * i, moving.advance(slope, step));
                if !f16_at(values, 2 * i).is_finite() {
                    put_f16(values, 2 * i, before);
                }
            }
            decode(view, row, &entries, values, weights);
        });
    }
}
