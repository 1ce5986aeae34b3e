//! Norms and their derivatives.

use rayon::prelude::*;

use super::real::Real;
use crate::ops::norm::{Kind, Norm};

/// Rows of gains handed to a thread at a time.
const AT_ONCE: usize = 16;

/// The normed rows.
pub fn forward<T: Real>(norm: &Norm, x: &[T]) -> Vec<T> {
    let mut y = x.to_vec();
    let all = norm.gains.len();
    y.par_chunks_mut(all * AT_ONCE).for_each(|rows| {
        for (i, row) in rows.chunks_exact_mut(norm.row).enumerate() {
            let from = i * norm.row % all;
            let gains = norm.gains[from..][..norm.row].iter().map(|&w| T::single(w));
            match norm.kind {
                Kind::Rms => {
                    let r = T::of(inverse(row, 0.0, norm.eps));
                    row.iter_mut().zip(gains).for_each(|(v, w)| *v = *v * r * w);
                }
                Kind::Layer => {
                    let mean = mean(row);
                    let (r, mean) = (T::of(inverse(row, mean, norm.eps)), T::of(mean));
                    row.iter_mut().zip(gains).for_each(|(v, w)| *v = (*v - mean) * r * w);
                }
            }
            if let Some(bias) = &norm.bias {
                row.iter_mut().zip(&bias[from..]).for_each(|(v, &b)| *v += T::single(b));
            }
        }
    });
    y
}

/// From the gradient at the result to that at `x`. With `u = (x - m) r` and `g = w dy` it is
/// `r * (g - u * mean(g * u))`, less the mean of `r * g` where means are taken off.
pub fn backward<T: Real>(norm: &Norm, x: &[T], mut dy: Vec<T>) -> Vec<T> {
    let (n, all) = (norm.row, norm.gains.len());
    dy.par_chunks_mut(all * AT_ONCE).zip(x.par_chunks(all * AT_ONCE)).for_each(|(dy, x)| {
        for (i, (dy, x)) in dy.chunks_exact_mut(n).zip(x.chunks_exact(n)).enumerate() {
            let gains = norm.gains[i * n % all..][..n].iter().map(|&w| T::single(w));
            let mean = match norm.kind {
                Kind::Rms => 0.0,
                Kind::Layer => mean(x),
            };
            let (r, m) = (inverse(x, mean, norm.eps), T::of(mean));
            let terms = dy.iter().zip(x).zip(gains.clone());
            let dot = terms.fold(0.0, |s, ((d, x), w)| s + (w * *d).wide() * (*x - m).wide());
            let (scale, along) = (T::of(r), T::of(r * r * r * dot / n as f64));
            for ((d, &x), w) in dy.iter_mut().zip(x).zip(gains) {
                *d = scale * (w * *d) - (x - m) * along;
            }
            if norm.kind == Kind::Layer {
                let mean = T::of(self::mean(dy));
                dy.iter_mut().for_each(|d| *d -= mean);
            }
        }
    });
    dy
}

fn mean<T: Real>(row: &[T]) -> f64 {
    row.iter().fold(0.0, |s, v| s + v.wide()) / row.len() as f64
}

/// The inverse of the root of the mean square of `x - mean`.
fn inverse<T: Real>(row: &[T], mean: f64, eps: f32) -> f64 {
    let sum = row.iter().fold(0.0, |s, v| s + (v.wide() - mean) * (v.wide() - mean));
    1.0 / (sum / row.len() as f64 + f64::from(eps)).sqrt()
}
