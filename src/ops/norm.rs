//! Normalisation of rows.

use super::CHUNK;
use crate::kernels::{Floats, Isa, elements};
use crate::pool;

/// The formula of a norm, on rows of the gains' length or a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `y = (x * r) * w`, `r = 1 / sqrt(mean(x^2) + eps)`.
    ///
    /// The squares are rounded to `f32` and summed in `f64` in index order; the mean is one `f64` division rounded to
    /// `f32` (ggml `ggml_compute_forward_rms_norm_f32` and the multiplication after it).
    Rms,
    /// `y = ((x - m) * r) * w + b`, `r = 1 / sqrt(v + eps)`, each operation rounded.
    ///
    /// The mean m is the `f64` sum in index order, rounded to `f32` and divided in `f32`. The variance v is the mean of
    /// the squares of x - m: squares in `f32`, four at a time added as `(a + b) + (c + d)`, those sums and the squares
    /// that are left added up in `f64`, divided in `f64` and rounded (ggml `ggml_compute_forward_norm_f32`).
    Layer,
}

/// A norm with its weights.
#[derive(Clone, Debug)]
pub struct Norm {
    /// The formula.
    pub kind: Kind,
    /// Epsilon, added to the mean of the squares.
    pub eps: f32,
    /// Elements that are normed together; divides the number of gains.
    pub row: usize,
    /// Gains, of one row or of several that follow each other.
    pub gains: Vec<f32>,
    /// Bias, added last, as long as the gains.
    pub bias: Option<Vec<f32>>,
}

impl Norm {
    /// The norms of all rows of `x`, whose length is a multiple of the gains'.
    pub fn apply(&self, isa: Isa, x: &[f32]) -> Floats {
        let mut y = Floats::scratch(x.len());
        let size = at_once(self.gains.len());
        pool::chunks_mut(&mut y, size, |i, y| {
            self.rows(isa, &x[i * size..][..y.len()], y);
        });
        y
    }

    /// The norms of whole rows, in the calling thread.
    fn rows(&self, isa: Isa, x: &[f32], y: &mut [f32]) {
        let rows = x.chunks_exact(self.row).zip(y.chunks_exact_mut(self.row));
        for ((x, y), (gains, bias)) in rows.zip(self.weights().cycle()) {
            match self.kind {
                Kind::Rms => elements::rms_norm(isa, x, gains, self.eps, y),
                Kind::Layer => elements::layer_norm(isa, x, gains, self.eps, y),
            }
            add(y, bias);
        }
    }

    /// `x += y`, and the norms of all rows of the sum, in one pass over the rows.
    pub fn apply_to_sum(&self, isa: Isa, x: &mut [f32], y: &[f32]) -> Floats {
        let mut normed = Floats::scratch(x.len());
        let size = at_once(self.gains.len());
        pool::chunk_pairs_mut(x, &mut normed, size, |i, x, normed| {
            x.iter_mut().zip(&y[i * size..]).for_each(|(x, y)| *x += y);
            self.rows(isa, x, normed);
        });
        normed
    }

    /// [`Norm::apply`] over the rows of `x` where they are.
    pub fn apply_in_place(&self, isa: Isa, x: &mut [f32]) {
        pool::chunks_mut(x, at_once(self.gains.len()), |_, x| {
            let rows = x.chunks_exact_mut(self.row);
            for (row, (gains, bias)) in rows.zip(self.weights().cycle()) {
                match self.kind {
                    Kind::Rms => elements::rms_norm_in_place(isa, row, gains, self.eps),
                    Kind::Layer => elements::layer_norm_in_place(isa, row, gains, self.eps),
                }
                add(row, bias);
            }
        });
    }

    /// The gains and the bias of each row.
    fn weights(&self) -> impl Iterator<Item = (&[f32], Option<&[f32]>)> + Clone {
        let biases = self.bias.as_deref();
        self.gains
            .chunks_exact(self.row)
            .enumerate()
            .map(move |(i, gains)| (gains, biases.map(|b| &b[i * self.row..][..self.row])))
    }
}

fn add(row: &mut [f32], bias: Option<&[f32]>) {
    if let Some(bias) = bias {
        row.iter_mut().zip(bias).for_each(|(v, b)| *v += b);
    }
}

/// Values of whole rows that are worth a task.
fn at_once(row: usize) -> usize {
    CHUNK.div_ceil(row.max(1)) * row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn norm(kind: Kind, row: usize, gains: Vec<f32>) -> Norm {
        Norm { kind, eps: 0.0, row, gains, bias: None }
    }

    #[test]
    fn a_row_of_equal_values_becomes_the_weight() {
        let y = norm(Kind::Rms, 8, vec![3.0; 8]).apply(Isa::detect(), &[2.0; 8]);
        assert_eq!(*y, [3.0; 8]);
    }

    #[test]
    fn squares_are_rounded_to_f32_before_the_double_sum() {
        // x^2 = 1 + 2^-11 + 2^-24 is not an f32: rounding it first changes the sum of many.
        let x = vec![1.0 + 1.0 / 4096.0; 4096];
        let rounded = f64::from(x[0] * x[0]);
        let mean = (rounded * 4096.0 / 4096.0) as f32;
        let want = x[0] * (1.0 / mean.sqrt());
        let y = norm(Kind::Rms, 4096, vec![1.0; 4096]).apply(Isa::detect(), &x);
        assert_eq!(y[7].to_bits(), want.to_bits());
    }

    #[test]
    fn rows_are_normalised_one_by_one_whatever_the_threads() {
        let x: Vec<f32> = (0..96 * 700).map(|i| (i % 1013) as f32 * 0.25 - 90.0).collect();
        let weight: Vec<f32> = (0..96).map(|i| i as f32 * 0.1).collect();
        for kind in [Kind::Rms, Kind::Layer] {
            let norm = norm(kind, 96, weight.clone());
            let rows = x.chunks(96).flat_map(|x| {
                let y = norm.apply(Isa::scalar(), x);
                y.to_vec()
            });
            let expected: Vec<f32> = rows.collect();
            let pool = pool::Pool::new(3).expect("threads");
            let (mut there, isa) = (x.clone(), Isa::detect());
            let y = pool.install(|| {
                norm.apply_in_place(isa, &mut there);
                norm.apply(isa, &x)
            });
            assert!(*y == *expected && there == expected);
            let ones = vec![1.0; x.len()];
            let mut sum: Vec<f32> = x.iter().map(|x| x - 1.0).collect();
            let y = pool.install(|| norm.apply_to_sum(isa, &mut sum, &ones));
            assert!(sum == x && *y == *expected);
        }
    }

    #[test]
    fn parts_of_a_row_have_gains_and_biases_of_their_own() {
        let mut norm = norm(Kind::Layer, 2, vec![1.0, 1.0, 10.0, 100.0]);
        norm.bias = Some(vec![0.0, 0.5, 0.0, 7.0]);
        let y = norm.apply(Isa::detect(), &[1.0, 3.0, 5.0, 1.0, 2.0, 0.0, 4.0, 6.0]);
        assert_eq!(*y, [-1.0, 1.5, 10.0, -93.0, 1.0, -0.5, -10.0, 107.0]);
    }
}
