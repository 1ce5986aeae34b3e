//! RMS normalisation.

use super::CHUNK;
use crate::kernels::{Floats, Isa, elements};
use crate::pool;

/// `y = (x * r) * w` per row, `r = 1 / sqrt(mean(x^2) + eps)`.
///
/// The squares are rounded to `f32` and summed in `f64` in index order; the mean is one `f64` division
/// rounded to `f32` (ggml `ggml_compute_forward_rms_norm_f32` and the multiplication after it).
/// `x` is `[rows][weight.len()]`.
pub fn rms(isa: Isa, x: &[f32], weight: &[f32], eps: f32) -> Floats {
    let n = weight.len();
    let mut y = Floats::scratch(x.len());
    let size = at_once(n);
    pool::chunks_mut(&mut y, size, |i, y| {
        let x = &x[i * size..][..y.len()];
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            elements::rms_norm(isa, x, weight, eps, y);
        }
    });
    y
}

/// [`rms`] over the rows of `x` where they are.
pub fn rms_in_place(isa: Isa, x: &mut [f32], weight: &[f32], eps: f32) {
    let n = weight.len();
    pool::chunks_mut(x, at_once(n), |_, x| {
        for row in x.chunks_exact_mut(n) {
            elements::rms_norm_in_place(isa, row, weight, eps);
        }
    });
}

/// Values of whole rows that are worth a task.
fn at_once(row: usize) -> usize {
    CHUNK.div_ceil(row.max(1)) * row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_equal_values_becomes_the_weight() {
        let y = rms(Isa::detect(), &[2.0; 8], &[3.0; 8], 0.0);
        assert_eq!(*y, [3.0; 8]);
    }

    #[test]
    fn squares_are_rounded_to_f32_before_the_double_sum() {
        // x^2 = 1 + 2^-11 + 2^-24 is not an f32: rounding it first changes the sum of many.
        let x = vec![1.0 + 1.0 / 4096.0; 4096];
        let rounded = f64::from(x[0] * x[0]);
        let mean = (rounded * 4096.0 / 4096.0) as f32;
        let want = x[0] * (1.0 / mean.sqrt());
        let y = rms(Isa::detect(), &x, &vec![1.0; 4096], 0.0);
        assert_eq!(y[7].to_bits(), want.to_bits());
    }

    #[test]
    fn rows_are_normalised_one_by_one_whatever_the_threads() {
        let x: Vec<f32> = (0..96 * 700)
            .map(|i| (i % 1013) as f32 * 0.25 - 90.0)
            .collect();
        let weight: Vec<f32> = (0..96).map(|i| i as f32 * 0.1).collect();
        let rows = x.chunks(96).flat_map(|x| {
            let y = rms(Isa::scalar(), x, &weight, 1e-5);
            y.to_vec()
        });
        let expected: Vec<f32> = rows.collect();
        let pool = pool::Pool::new(3).expect("threads");
        let (mut there, isa) = (x.clone(), Isa::detect());
        let y = pool.install(|| {
            rms_in_place(isa, &mut there, &weight, 1e-5);
            rms(isa, &x, &weight, 1e-5)
        });
        assert!(*y == *expected && there == expected);
    }
}
