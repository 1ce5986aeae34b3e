//! RMS normalisation.

use rayon::prelude::*;

/// `y = (x * r) * w` per row, `r = 1 / sqrt(mean(x^2) + eps)`.
///
/// The squares are rounded to `f32` and summed in `f64` in index order; the mean is one `f64` division
/// rounded to `f32` (ggml `ggml_compute_forward_rms_norm_f32` and the multiplication after it).
/// `x` is `[rows][weight.len()]`.
pub fn rms(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mut y = x.to_vec();
    rms_in_place(&mut y, weight, eps);
    y
}

/// [`rms`] over the rows of `x` where they are.
pub fn rms_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let n = weight.len();
    // A few rows at a time: one norm is too small a piece of work to hand to another thread.
    x.par_chunks_mut(n * 16).for_each(|rows| {
        rows.chunks_exact_mut(n).for_each(|row| {
            let sum = row.iter().fold(0f64, |s, &v| s + f64::from(v * v));
            let mean = (sum / n as f64) as f32;
            let r = 1.0 / (mean + eps).sqrt();
            row.iter_mut()
                .zip(weight)
                .for_each(|(v, w)| *v = (*v * r) * w);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_equal_values_becomes_the_weight() {
        let y = rms(&[2.0; 8], &[3.0; 8], 0.0);
        assert_eq!(y, [3.0; 8]);
    }

    #[test]
    fn squares_are_rounded_to_f32_before_the_double_sum() {
        // x^2 = 1 + 2^-11 + 2^-24 is not an f32: rounding it first changes the sum of many.
        let x = vec![1.0 + 1.0 / 4096.0; 4096];
        let rounded = f64::from(x[0] * x[0]);
        let mean = (rounded * 4096.0 / 4096.0) as f32;
        let want = x[0] * (1.0 / mean.sqrt());
        assert_eq!(rms(&x, &vec![1.0; 4096], 0.0)[7].to_bits(), want.to_bits());
    }
}
