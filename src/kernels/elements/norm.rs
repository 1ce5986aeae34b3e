//! Norms of a row.

use crate::proof::compiled_for;
use crate::{Isa, Level};

/// `out = (x * r) * weight`, `r = 1 / sqrt(mean(x^2) + eps)`.
///
/// The squares are rounded to `f32` and summed in `f64` in index order; the mean is one `f64` division
/// rounded to `f32`.
///
/// # Panics
/// When the lengths differ.
pub fn rms_norm(isa: Isa, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "lengths of a norm");
    let r = factor(isa, x, eps);
    compiled_for!(isa, scale(x: &[f32], r: f32, weight: &[f32], out: &mut [f32]));
}

/// [`rms_norm`] where the row is.
///
/// # Panics
/// When the lengths differ.
pub fn rms_norm_in_place(isa: Isa, x: &mut [f32], weight: &[f32], eps: f32) {
    assert_eq!(x.len(), weight.len(), "lengths of a norm");
    let r = factor(isa, x, eps);
    compiled_for!(isa, scale_in_place(x: &mut [f32], r: f32, weight: &[f32]));
}

#[inline(always)]
fn scale(x: &[f32], r: f32, weight: &[f32], out: &mut [f32]) {
    for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
        *out = (x * r) * w;
    }
}

#[inline(always)]
fn scale_in_place(x: &mut [f32], r: f32, weight: &[f32]) {
    for (x, w) in x.iter_mut().zip(weight) {
        *x = (*x * r) * w;
    }
}

/// `out = ((x - m) * r) * weight`, `r = 1 / sqrt(v + eps)`, each operation rounded.
///
/// The mean m is the sum in `f64` and index order, rounded and divided in `f32`. The variance v is the mean of the
/// squares of x - m: squares in `f32`, each four of them added as `(a + b) + (c + d)`, those sums and the squares that
/// are left added up in `f64`, divided in `f64` and rounded.
///
/// # Panics
/// When the lengths differ.
pub fn layer_norm(isa: Isa, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "lengths of a norm");
    out.copy_from_slice(x);
    layer_norm_in_place(isa, out, weight, eps);
}

/// [`layer_norm`] where the row is.
///
/// # Panics
/// When the lengths differ.
pub fn layer_norm_in_place(isa: Isa, x: &mut [f32], weight: &[f32], eps: f32) {
    assert_eq!(x.len(), weight.len(), "lengths of a norm");
    let sum = x.iter().fold(0f64, |s, &v| s + f64::from(v));
    let mean = sum as f32 / x.len() as f32;
    compiled_for!(isa, center_and_scale(x: &mut [f32], weight: &[f32], mean: f32, eps: f32));
}

#[inline(always)]
fn center_and_scale(x: &mut [f32], weight: &[f32], mean: f32, eps: f32) {
    x.iter_mut().for_each(|x| *x -= mean);
    let (fours, rest) = x.as_chunks::<4>();
    let sum = fours.iter().fold(0f64, |s, v| s + f64::from((v[0] * v[0] + v[1] * v[1]) + (v[2] * v[2] + v[3] * v[3])));
    let sum = rest.iter().fold(sum, |s, &v| s + f64::from(v * v));
    let variance = (sum / x.len() as f64) as f32;
    let r = 1.0 / (variance + eps).sqrt();
    scale_in_place(x, r, weight);
}

fn factor(isa: Isa, x: &[f32], eps: f32) -> f32 {
    let mean = match isa.vectors() {
        Level::Scalar => None,
        _ => quick_mean(isa, x),
    };
    1.0 / (mean.unwrap_or_else(|| mean_in_order(x)) + eps).sqrt()
}

/// The definition.
fn mean_in_order(x: &[f32]) -> f32 {
    let sum = x.iter().fold(0f64, |s, &v| s + f64::from(v * v));
    (sum / x.len() as f64) as f32
}

/// The mean from a sum in another order, where that provably rounds to the same `f32`.
///
/// No term is negative, so any two orders of the sum S of n terms differ by less than n 2^-52 S. If
/// the mean rounds alike at both ends of that interval it does so for the sum in order; NaN and
/// infinity never do.
fn quick_mean(isa: Isa, x: &[f32]) -> Option<f32> {
    let n = x.len() as f64;
    let mut sum = 0.0;
    let out = &mut sum;
    compiled_for!(isa, free_sum(x: &[f32], out: &mut f64));
    let error = sum * n * f64::EPSILON;
    let least = ((sum - error) / n) as f32;
    let most = ((sum + error) / n) as f32;
    (least == most).then_some(least)
}

#[inline(always)]
fn free_sum(x: &[f32], out: &mut f64) {
    const LANES: usize = 32;
    let mut sums = [0f64; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (s, &v) in sums.iter_mut().zip(chunk) {
            *s += f64::from(v * v);
        }
    }
    for (s, &v) in sums.iter_mut().zip(rest) {
        *s += f64::from(v * v);
    }
    *out = sums.iter().sum();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, isas, same};

    fn definition(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
        let r = 1.0 / (mean_in_order(x) + eps).sqrt();
        x.iter().zip(weight).map(|(x, w)| (x * r) * w).collect()
    }

    fn check(x: &[f32], weight: &[f32], what: &str) {
        for eps in [0.0, 1e-6] {
            let expected = definition(x, weight, eps);
            for isa in isas() {
                let mut out = vec![0.0; x.len()];
                rms_norm(isa, x, weight, eps, &mut out);
                let mut there = x.to_vec();
                rms_norm_in_place(isa, &mut there, weight, eps);
                for ((a, b), c) in out.iter().zip(&expected).zip(&there) {
                    assert!(same(*a, *b) && same(*c, *b), "{isa} {what}, {} values: {a:e}, {c:e}, not {b:e}", x.len());
                }
            }
        }
    }

    #[test]
    fn rows_of_all_lengths_and_values_give_the_bits_of_the_sum_in_order() {
        let mut random = Random(0x4215);
        let special = [f32::NAN, f32::INFINITY, -0.0, 1e-45, 3e38, 1e25, -1e-30];
        for n in (1..70).chain([96, 257, 1536, 4096]) {
            let weight: Vec<f32> = (0..n).map(|_| random.float()).collect();
            for case in 0..12 {
                let factor = [1.0, 1e-20, 1e-30, 1e18][case % 4];
                let mut x: Vec<f32> = (0..n).map(|_| random.float() * factor).collect();
                for _ in 0..case / 6 {
                    x[random.below(n)] = special[random.below(special.len())];
                }
                check(&x, &weight, "random");
            }
        }
        check(&[0.0; 40], &[1.0; 40], "zeros");
        check(&[-0.0; 40], &[-1.0; 40], "zeros");
    }

    #[test]
    fn layer_norms_give_the_bits_of_the_formula() {
        let mut random = Random(0x1A7E);
        for n in (1..40).chain([256, 1601]) {
            let x: Vec<f32> = (0..n).map(|_| random.float() * 3.0 + 1.0).collect();
            let weight: Vec<f32> = (0..n).map(|_| random.float()).collect();
            let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() as f32 / n as f32;
            let centered: Vec<f32> = x.iter().map(|v| v - mean).collect();
            let mut sum = 0f64;
            for group in centered.chunks(4) {
                match *group {
                    [a, b, c, d] => sum += f64::from((a * a + b * b) + (c * c + d * d)),
                    _ => group.iter().for_each(|v| sum += f64::from(v * v)),
                }
            }
            let r = 1.0 / ((sum / n as f64) as f32 + 1e-5).sqrt();
            for isa in isas() {
                let mut out = vec![0.0; n];
                layer_norm(isa, &x, &weight, 1e-5, &mut out);
                for ((y, c), w) in out.iter().zip(&centered).zip(&weight) {
                    assert_eq!(y.to_bits(), (c * r * w).to_bits(), "{isa} {n}");
                }
            }
        }
    }

    #[test]
    fn sums_between_two_floats_take_the_order_that_counts() {
        // 2^24 + 1 lies midway between two floats, and so does its 2^k-th part: no interval around it
        // rounds alike, so these rows must take the way in order.
        for n in [2usize, 64, 1024] {
            let mut x = vec![0f32; n];
            x[0] = 4096.0;
            x[n - 1] = 1.0;
            let sum = f64::from(x[0] * x[0]) + 1.0;
            assert_eq!(sum as f32, 16_777_216.0, "midway");
            for isa in isas() {
                assert_eq!(quick_mean(isa, &x), None, "{isa} {n}");
            }
            check(&x, &vec![1.0; n], "midway");
        }
    }
}
