//! The scales and minima of a matrix on their way: gradients, steps and the bytes that they make.

use rayon::prelude::*;
use trine_formats::types::numbers::Numbers;
use trine_formats::types::{DecodeFn, TypeId};

use super::moving::{Movable, Moving, Step};
use crate::kernels::{self, Isa};

/// A quantized matrix, or those of all experts, whose codes stay.
pub struct Scales {
    numbers: Numbers,
    decode: DecodeFn,
    columns: usize,
    /// The rows as the file has them.
    rows: Vec<u8>,
    row_bytes: usize,
    /// The numbers, `[rows][units][kinds][spans]`.
    moving: Vec<Moving>,
}

impl Scales {
    /// The scales of rows of `columns` weights; none where the type has no numbers to move.
    pub fn new(ty: TypeId, columns: usize, rows: &[u8], isa: Isa) -> Option<Scales> {
        let numbers = Numbers::of(ty, columns)?;
        let decode = kernels::decode_rows(ty, isa)?;
        let row_bytes = columns / numbers.weights * numbers.bytes;
        let mut moving = Vec::with_capacity(rows.len() / numbers.bytes * numbers.count());
        for unit in rows.chunks_exact(numbers.bytes) {
            for &kind in &numbers.kinds {
                let mut values = vec![0f32; numbers.weights / numbers.span(kind)];
                numbers.read(kind, unit, &mut values);
                // A share of a scale is as much for a small one as for a large one.
                moving.extend(values.into_iter().map(|first| Moving::new(first, first)));
            }
        }
        Some(Scales { numbers, decode, columns, rows: rows.to_vec(), row_bytes, moving })
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
        let Scales { numbers, decode, columns, rows, row_bytes, moving } = self;
        let each = *columns / numbers.weights * numbers.count();
        let rows = rows.par_chunks_exact_mut(*row_bytes).zip(moving.par_chunks_exact_mut(each));
        let plain = gradients.par_chunks_exact(*columns).zip(weights.par_chunks_exact_mut(*columns));
        rows.zip(plain).for_each(|((row, moving), (gradients, weights))| {
            let slopes = slopes(numbers, *decode, row, gradients);
            let mut values: Vec<f32> = moving.iter_mut().zip(slopes).map(|(m, slope)| m.advance(slope, step)).collect();
            let units = row.chunks_exact_mut(numbers.bytes).zip(values.chunks_exact_mut(numbers.count()));
            for (unit, mut values) in units {
                for &kind in &numbers.kinds {
                    let (own, others) = values.split_at_mut(numbers.weights / numbers.span(kind));
                    numbers.write(kind, unit, own);
                    values = others;
                }
            }
            decode(row, weights);
        });
    }
}

/// The gradients at the numbers of a row, `[units][kinds][spans]`, from those at its weights.
fn slopes(numbers: &Numbers, decode: DecodeFn, row: &[u8], gradients: &[f32]) -> Vec<f64> {
    let count = numbers.count();
    let mut slopes = vec![0f64; gradients.len() / numbers.weights * count];
    let (mut alone, mut part) = (row.to_vec(), vec![0f32; gradients.len()]);
    let mut first = 0;
    for &kind in &numbers.kinds {
        alone.copy_from_slice(row);
        alone.chunks_exact_mut(numbers.bytes).for_each(|unit| numbers.isolate(kind, unit));
        decode(&alone, &mut part);
        let span = numbers.span(kind);
        let units = part.chunks_exact(numbers.weights).zip(gradients.chunks_exact(numbers.weights));
        for ((part, gradients), slopes) in units.zip(slopes.chunks_exact_mut(count)) {
            let spans = part.chunks_exact(span).zip(gradients.chunks_exact(span));
            for ((part, gradients), slope) in spans.zip(&mut slopes[first..]) {
                let products = part.iter().zip(gradients).map(|(&p, &g)| f64::from(p) * f64::from(g));
                *slope = products.fold(0.0, |s, x| s + x);
            }
        }
        first += numbers.weights / span;
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
        let numbers = Numbers::of(TypeId::Q4_1, 64).expect("floats");
        let of = |bytes: &[u8], block: usize, i: usize| {
            let mut value = [0f32];
            numbers.read(numbers.kinds[i], &bytes[block * 20..][..20], &mut value);
            value[0]
        };
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

    /// Groups of a K-quant: pulled hard enough, an integer goes to its neighbour.
    #[test]
    fn integers_of_groups_move_too() {
        let encode = TypeId::Q4_K.info().and_then(|info| info.encode).expect("an encoder");
        let x: Vec<f32> = (0..256).map(|i| (i * 7 % 16) as f32 * (1.0 + i as f32 / 256.0)).collect();
        let mut row = vec![0u8; 144];
        encode(&x, None, &mut row);
        let mut scales = Scales::new(TypeId::Q4_K, 256, &row, Isa::scalar()).expect("numbers");
        assert_eq!(scales.len(), 2 + 8 + 8);
        // The weights of the last group should be smaller.
        let gradients: Vec<f32> = x.iter().enumerate().map(|(i, &x)| if i < 224 { 0.0 } else { x }).collect();
        let (mut before, mut after) = (vec![0f32; 256], vec![0f32; 256]);
        scales.decode(&mut before);
        scales.advance(&gradients, Step::new(0, 0.03), &mut after);
        let shrunk =
            |from: usize| after[from..from + 32].iter().sum::<f32>() / before[from..from + 32].iter().sum::<f32>();
        // The block's scale by 3 %, and the group's too.
        assert!((0.96..0.98).contains(&shrunk(0)), "{}", shrunk(0));
        assert!((0.92..0.955).contains(&shrunk(224)), "{}", shrunk(224));
        assert!(row[16..] == scales.bytes()[16..], "the codes stay");
    }
}
