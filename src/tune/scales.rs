//! The scales and minima of a matrix on their way: gradients, steps and the bytes that they make.

use rayon::prelude::*;
use trine_formats::types::{DecodeFn, TypeId};

use super::floats::Floats;
use super::moving::{Movable, Moving, Step};
use crate::kernels::{self, Isa};

/// A quantized matrix, or those of all experts, whose codes stay.
pub struct Scales {
    floats: Floats,
    decode: DecodeFn,
    columns: usize,
    /// The rows as the file has them.
    rows: Vec<u8>,
    row_bytes: usize,
    moving: Vec<Moving>,
}

impl Scales {
    /// Those of rows of `columns` weights; none where the type has no floats to move.
    pub fn new(ty: TypeId, columns: usize, rows: &[u8], isa: Isa) -> Option<Scales> {
        let floats = Floats::of(ty, columns)?;
        let decode = kernels::decode_rows(ty, isa)?;
        let row_bytes = columns / floats.weights * floats.bytes;
        let units = rows.chunks_exact(floats.bytes);
        let count = floats.places.len();
        let first = units.flat_map(|unit| (0..count).map(|i| floats.read(unit, i)).collect::<Vec<_>>());
        // A share of a scale is as much for a small one as for a large one.
        let moving = first.map(|first| Moving::new(first, first)).collect();
        Some(Scales { floats, decode, columns, rows: rows.to_vec(), row_bytes, moving })
    }
}

impl Movable for Scales {
    fn len(&self) -> usize {
        self.moving.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.rows
    }

    fn decode(&self, weights: &mut [f32]) {
        let rows = self.rows.par_chunks_exact(self.row_bytes);
        rows.zip(weights.par_chunks_exact_mut(self.columns)).for_each(|(row, weights)| (self.decode)(row, weights));
    }

    fn advance(&mut self, gradients: &[f32], step: Step, weights: &mut [f32]) {
        let Scales { floats, decode, columns, rows, row_bytes, moving } = self;
        let each = *columns / floats.weights * floats.places.len();
        let rows = rows.par_chunks_exact_mut(*row_bytes).zip(moving.par_chunks_exact_mut(each));
        let plain = gradients.par_chunks_exact(*columns).zip(weights.par_chunks_exact_mut(*columns));
        rows.zip(plain).for_each(|((row, moving), (gradients, weights))| {
            let slopes = slopes(floats, *decode, row, gradients);
            let units = row.chunks_exact_mut(floats.bytes).zip(moving.chunks_exact_mut(floats.places.len()));
            for ((unit, moving), slopes) in units.zip(slopes.chunks_exact(floats.places.len())) {
                for (i, (moving, &slope)) in moving.iter_mut().zip(slopes).enumerate() {
                    let before = floats.read(unit, i);
                    let value = moving.advance(slope, step);
                    floats.write(unit, i, value);
                    // Nothing leaves the format.
                    if !floats.read(unit, i).is_finite() {
                        floats.write(unit, i, before);
                    }
                }
            }
            decode(row, weights);
        });
    }
}

/// The gradients at the floats of a row, `[units][floats]`, from those at its weights.
fn slopes(floats: &Floats, decode: DecodeFn, row: &[u8], gradients: &[f32]) -> Vec<f64> {
    let count = floats.places.len();
    let mut slopes = vec![0f64; gradients.len() / floats.weights * count];
    let (mut alone, mut part) = (row.to_vec(), vec![0f32; gradients.len()]);
    for i in 0..count {
        for unit in alone.chunks_exact_mut(floats.bytes) {
            (0..count).for_each(|j| floats.write(unit, j, f32::from(u8::from(i == j))));
        }
        decode(&alone, &mut part);
        let units = part.chunks_exact(floats.weights).zip(gradients.chunks_exact(floats.weights));
        for (unit, (part, gradients)) in units.enumerate() {
            let products = part.iter().zip(gradients).map(|(&p, &g)| f64::from(p) * f64::from(g));
            slopes[unit * count + i] = products.fold(0.0, |s, x| s + x);
        }
    }
    slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two blocks of Q4_1 whose gradients pull the scale of one and the minimum of the other.
    #[test]
    fn floats_go_against_their_gradients() {
        let encode = TypeId::Q4_1.info().and_then(|info| info.encode).expect("an encoder");
        let x: Vec<f32> = (0..64).map(|i| (i * 7 % 16) as f32 - 3.0).collect();
        let mut row = vec![0u8; 40];
        encode(&x, None, &mut row);
        let mut scales = Scales::new(TypeId::Q4_1, 64, &row, Isa::scalar()).expect("floats");
        assert_eq!(scales.len(), 4);
        // The scale of the first block weighs 0 .. 15 and its minimum 1: what pulls at one leaves the other where it is.
        let code = |i: usize| (x[i] + 3.0) as f64;
        let mean = (0..32).map(code).sum::<f64>() / 32.0;
        let gradients: Vec<f32> = (0..64).map(|i| if i < 32 { (code(i) - mean) as f32 } else { 1.0 }).collect();
        let mut weights = vec![0f32; 64];
        scales.advance(&gradients, Step::new(0, 0.01), &mut weights);
        let floats = Floats::of(TypeId::Q4_1, 64).expect("floats");
        let of = |bytes: &[u8], block: usize, i: usize| floats.read(&bytes[block * 20..][..20], i);
        let (old, new) = (&row[..], scales.bytes());
        // The first step of Adam is as long as the rate, here 1 %, whatever the gradient.
        assert!((of(new, 0, 0) / of(old, 0, 0) - 0.99).abs() < 1e-3);
        assert!((of(new, 1, 0) / of(old, 1, 0) - 0.99).abs() < 1e-3);
        assert!((of(new, 1, 1) / of(old, 1, 1) - 1.01).abs() < 1e-3, "a minimum of -3 goes down");
        assert!(old.chunks(20).zip(new.chunks(20)).all(|(old, new)| old[4..] == new[4..]), "the codes stay");
        let mut decoded = vec![0f32; 64];
        scales.decode(&mut decoded);
        assert_eq!(decoded, weights);
    }
}
