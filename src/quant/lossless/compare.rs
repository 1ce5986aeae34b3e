//! Decodes two tensors and compares them weight by weight.

use rayon::prelude::*;
use trine_formats::types::ternary::TernaryError;

use super::decode::{Decoder, Scratch};

/// A weight that is not the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    /// Row, through all matrices of a stack.
    pub row: usize,
    /// Column.
    pub column: usize,
    /// Weight of the first tensor.
    pub was: f32,
    /// Weight of the second tensor.
    pub is: f32,
}

/// How two tensors compare. Weights are the same when their bits are, or when both are zero.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Comparison {
    /// Weights compared.
    pub weights: u64,
    /// Weights that are not the same.
    pub different: u64,
    /// The first of them.
    pub first: Option<Difference>,
    /// Zeros that differ in sign.
    pub zero_signs: u64,
    /// Sum of squares of the first tensor.
    pub(super) energy: f64,
    /// Sum of squares of the difference.
    pub(super) error: f64,
}

impl Comparison {
    /// True if every weight is the same.
    pub fn is_equal(&self) -> bool {
        self.different == 0
    }

    /// Root of the squared difference relative to the first tensor's.
    pub fn relative_error(&self) -> f64 {
        match (self.error, self.energy) {
            (0.0, _) => 0.0,
            (error, energy) => (error / energy).sqrt(),
        }
    }

    fn add(&mut self, other: &Comparison) {
        self.weights += other.weights;
        self.different += other.different;
        self.first = self.first.or(other.first);
        self.zero_signs += other.zero_signs;
        self.energy += other.energy;
        self.error += other.error;
    }

    fn of_row(row: usize, was: &[f32], is: &[f32]) -> Comparison {
        let mut c = Comparison { weights: was.len() as u64, ..Comparison::default() };
        for (column, (&a, &b)) in was.iter().zip(is).enumerate() {
            c.energy += f64::from(a) * f64::from(a);
            if a.to_bits() == b.to_bits() {
                continue;
            }
            if a == 0.0 && b == 0.0 {
                c.zero_signs += 1;
                continue;
            }
            let d = f64::from(a) - f64::from(b);
            c.error += d * d;
            c.different += 1;
            let difference = Difference { row, column, was: a, is: b };
            c.first = c.first.or(Some(difference));
        }
        c
    }
}

/// Compares all rows of two tensors of the same shape. The sums are added in the order of the rows.
///
/// # Errors
/// A code that stands for no weight, in either.
pub fn compare(was: &Decoder<'_>, is: &Decoder<'_>) -> Result<Comparison, TernaryError> {
    let columns = was.columns();
    let scratch = || (Scratch::default(), vec![0f32; columns], vec![0f32; columns]);
    let rows: Vec<Comparison> = (0..was.rows())
        .into_par_iter()
        .map_init(scratch, |(scratch, a, b), row| {
            was.row(row, scratch, a)?;
            is.row(row, scratch, b)?;
            Ok(Comparison::of_row(row, a, b))
        })
        .collect::<Result<_, TernaryError>>()?;
    let mut total = Comparison::default();
    rows.iter().for_each(|c| total.add(c));
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_differs() {
        let same = Comparison::of_row(0, &[1.0, -0.0, f32::NAN], &[1.0, 0.0, f32::NAN]);
        assert!(same.is_equal());
        assert_eq!((same.weights, same.zero_signs), (3, 1));
        let other = Comparison::of_row(7, &[3.0, 4.0], &[3.0, 4.5]);
        assert_eq!(other.different, 1);
        assert_eq!(other.relative_error(), 0.1);
        let first = other.first.unwrap();
        assert_eq!((first.row, first.column, first.was, first.is), (7, 1, 4.0, 4.5));
        let mut sum = same;
        sum.add(&other);
        assert_eq!((sum.weights, sum.different, sum.first), (5, 1, other.first));
    }
}
