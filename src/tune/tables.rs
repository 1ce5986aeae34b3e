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
    /// The tables of a matrix at one width.
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

#[cfg(test)]
mod tests {
    use trine_formats::anyprec::{SparseView, pack_row};
    use trine_formats::gguf::Blob;

    use super::*;

    /// A row of codes 0, 1, 2, 3, 0, 1 .. at two bits, the weight in column 4 stored as it is.
    #[test]
    fn values_go_against_the_gradients_of_their_own_weights() {
        let codes: Vec<u8> = (0..64).map(|i| i % 4).collect();
        let mut planes = vec![vec![0u8; 8]; 2];
        let mut parts: Vec<&mut [u8]> = planes.iter_mut().map(|plane| &mut plane[..]).collect();
        pack_row(&codes, &mut parts);
        let halves = |values: &[f32]| {
            let mut bytes = vec![0u8; 2 * values.len()];
            values.iter().enumerate().for_each(|(i, &v)| put_f16(&mut bytes, 2 * i, v));
            Blob::from_vec(bytes)
        };
        let ints = |values: &[i32]| Blob::from_vec(values.iter().flat_map(|v| v.to_le_bytes()).collect());
        let sparse = SparseView { ptr: ints(&[0, 1]), col: ints(&[4]), val: halves(&[9.0]) };
        let (planes, lut) = (planes.into_iter().map(Blob::from_vec).collect(), halves(&[-2.0, 0.0, 2.0, 4.0]));
        let view = ApView { width: 2, columns: 64, rows: 1, groups: 1, planes, lut, sparse: Some(sparse) };
        let mut tables = Tables::new(view);
        let mut weights = vec![0f32; 64];
        tables.decode(&mut weights);
        assert_eq!(weights[..6], [-2.0, 0.0, 2.0, 4.0, 9.0, 0.0]);
        // The stored weight pulls alone at the first value; the others of code 1 pull down and those of code 3 up.
        let gradient = |(i, &code): (usize, &u8)| match (i, code) {
            (4, _) => 5.0,
            (_, 1) => 1.0,
            (_, 3) => -1.0,
            _ => 0.0,
        };
        let gradients: Vec<f32> = codes.iter().enumerate().map(gradient).collect();
        tables.advance(&gradients, Step::new(0, 0.1), &mut weights);
        // A tenth of the root of the mean square of the table.
        let step = 0.1 * 6f32.sqrt();
        for (got, want) in weights[..6].iter().zip([-2.0, -step, 2.0, 4.0 + step, 9.0, -step]) {
            assert!((got - want).abs() < 2e-3, "{got} {want}");
        }
    }
}
