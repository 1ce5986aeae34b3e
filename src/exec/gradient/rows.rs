//! Rows: parts of them, RoPE, rotations, with their derivatives.

use rayon::prelude::*;

use super::elements::{add, dot};
use super::real::Real;
use crate::ops::hadamard::Hadamard;
use crate::ops::rope::{Pairing, Rope};

/// The parts of rows of `widths`, one after the other.
pub fn split<T: Real>(x: &[T], widths: &[usize]) -> Vec<Vec<T>> {
    let all: usize = widths.iter().sum();
    let mut from = 0;
    let parts = widths.iter().map(|width| {
        let columns = from..from + width;
        from += width;
        x.chunks_exact(all.max(1)).flat_map(|row| &row[columns.clone()]).copied().collect()
    });
    parts.collect()
}

/// Rows of parts side by side; parts that are absent are 0.
pub fn join<T: Real>(parts: &[Option<&[T]>], widths: &[usize]) -> Vec<T> {
    let mut wide = parts.iter().zip(widths).filter(|(_, width)| **width > 0);
    let rows = wide.find_map(|(part, width)| part.map(|part| part.len() / width));
    let mut out = Vec::new();
    for row in 0..rows.unwrap_or(0) {
        for (part, width) in parts.iter().zip(widths) {
            match part {
                Some(part) => out.extend_from_slice(&part[row * width..][..*width]),
                None => out.resize(out.len() + width, T::default()),
            }
        }
    }
    out
}

/// Every `width` elements, `times` times.
pub fn repeat<T: Real>(x: &[T], width: usize, times: usize) -> Vec<T> {
    x.chunks_exact(width).flat_map(|part| std::iter::repeat_n(part, times).flatten()).copied().collect()
}

/// The sums of every `times` parts of `width` elements.
pub fn repeat_back<T: Real>(dy: &[T], width: usize, times: usize) -> Vec<T> {
    let mut dx = vec![T::default(); dy.len() / times];
    for (dx, dy) in dx.chunks_exact_mut(width).zip(dy.chunks_exact(width * times)) {
        dy.chunks_exact(width).for_each(|dy| add(dx, dy));
    }
    dx
}

/// Every `width` elements of `x` with the length of those of `y`, of which each stand for as many of `x`.
pub fn as_long<T: Real>(mut x: Vec<T>, y: &[T], width: usize) -> Vec<T> {
    let times = x.len() / y.len();
    for (x, y) in x.chunks_exact_mut(times * width).zip(y.chunks_exact(width)) {
        for row in x.chunks_exact_mut(width) {
            let factor = length(y) / length(row);
            row.iter_mut().for_each(|x| *x *= factor);
        }
    }
    x
}

/// The gradients at `x` and `y` from that at the result of [`as_long`]: across `x` it is that of a product, along `x`
/// there is none, and at `y` it is along `y`.
pub fn as_long_back<T: Real>([x, y]: [&[T]; 2], mut dz: Vec<T>, width: usize) -> [Vec<T>; 2] {
    let times = x.len() / y.len();
    let mut dy = vec![T::default(); y.len()];
    let rows = x.chunks_exact(times * width).zip(dz.chunks_exact_mut(times * width));
    for ((x, dz), (y, dy)) in rows.zip(y.chunks_exact(width).zip(dy.chunks_exact_mut(width))) {
        let wanted = length(y);
        for (x, dz) in x.chunks_exact(width).zip(dz.chunks_exact_mut(width)) {
            let (own, along) = (length(x), dot(x, dz));
            dy.iter_mut().zip(y).for_each(|(dy, &y)| *dy += y * (along / (own * wanted)));
            let (factor, back) = (wanted / own, along / (own * own));
            dz.iter_mut().zip(x).for_each(|(d, &x)| *d = factor * (*d - x * back));
        }
    }
    [dz, dy]
}

/// The root of the sum of a row's squares.
fn length<T: Real>(row: &[T]) -> T {
    T::of(dot(row, row).wide().sqrt())
}

/// The part of every row of `width` elements that is above its mean and `factor` standard deviations.
pub fn cutoff<T: Real>(mut x: Vec<T>, width: usize, factor: f32) -> Vec<T> {
    for row in x.chunks_exact_mut(width) {
        let (mean, deviation) = spread(row);
        let bound = mean + T::single(factor) * deviation;
        row.iter_mut().for_each(|x| *x = if *x > bound { *x - bound } else { T::default() });
    }
    x
}

/// The gradient at `x` from that at the result of [`cutoff`]: what is above the bound has it, less for every element
/// of the row its part in the bound.
pub fn cutoff_back<T: Real>(x: &[T], mut dy: Vec<T>, width: usize, factor: f32) -> Vec<T> {
    for (row, dy) in x.chunks_exact(width).zip(dy.chunks_exact_mut(width)) {
        let (mean, deviation) = spread(row);
        let (factor, zero) = (T::single(factor), T::default());
        let bound = mean + factor * deviation;
        dy.iter_mut().zip(row).for_each(|(d, &x)| *d = if x > bound { *d } else { zero });
        let sum = T::of(dy.iter().fold(0.0, |sum, d| sum + d.wide()));
        // rows without a deviation have a bound that does not turn with them
        let turned = match deviation > zero {
            true => factor * sum / (deviation * T::of(width as f64 - 1.0)),
            false => zero,
        };
        let of_mean = sum / T::of(width as f64);
        dy.iter_mut().zip(row).for_each(|(d, &x)| *d -= of_mean + (x - mean) * turned);
    }
    dy
}

/// Mean and standard deviation of a row.
fn spread<T: Real>(row: &[T]) -> (T, T) {
    let mean = T::of(row.iter().fold(0.0, |sum, x| sum + x.wide()) / row.len() as f64);
    let apart: Vec<T> = row.iter().map(|&x| x - mean).collect();
    (mean, T::of((dot(&apart, &apart).wide() / (row.len() as f64 - 1.0)).sqrt()))
}

/// Which way RoPE turns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// By the position's angles.
    Forward,
    /// Back by them: the transposed matrix, which takes gradients through.
    Back,
}

/// RoPE on all heads of `x`, `[tokens][heads * head]`; `angles`: cosine and sine per position and pair.
pub fn rotate<T: Real>(x: &mut [T], head: usize, rope: &Rope, angles: &[Vec<(f32, f32)>], turn: Turn) {
    let (n, half, width) = (rope.n_rot, rope.n_rot / 2, x.len() / angles.len().max(1));
    x.par_chunks_mut(width.max(1)).enumerate().for_each(|(i, row)| {
        let pairs: Vec<(T, T)> = angles[i]
            .iter()
            .map(|&(cos, sin)| {
                let sin = if turn == Turn::Back { -sin } else { sin };
                (T::single(cos), T::single(sin))
            })
            .collect();
        let turned = |a: T, b: T, (c, s): (T, T)| (a * c - b * s, a * s + b * c);
        for head in row.chunks_exact_mut(head) {
            match rope.pairing {
                Pairing::Adjacent => {
                    for (x, &pair) in head[..n].chunks_exact_mut(2).zip(&pairs) {
                        (x[0], x[1]) = turned(x[0], x[1], pair);
                    }
                }
                Pairing::Halves => {
                    let (first, second) = head[..n].split_at_mut(half);
                    for ((a, b), &pair) in first.iter_mut().zip(second).zip(&pairs) {
                        (*a, *b) = turned(*a, *b, pair);
                    }
                }
            }
        }
    });
}

/// The rotated rows. Backwards it is the rotation the other way.
pub fn hadamard<T: Real>(rotation: &Hadamard, mut x: Vec<T>, inverse: bool) -> Vec<T> {
    let (block, row) = (rotation.block, rotation.signs.len().max(rotation.block));
    let signs = |row: &mut [T]| row.iter_mut().zip(&rotation.signs).for_each(|(v, &sign)| *v *= T::single(sign));
    let factor = T::of(1.0 / (block as f64).sqrt());
    x.par_chunks_mut(row).for_each(|row| {
        if !inverse {
            signs(row);
        }
        for block in row.chunks_exact_mut(block) {
            let mut half = 1;
            while half < block.len() {
                for pair in block.chunks_exact_mut(2 * half) {
                    let (first, second) = pair.split_at_mut(half);
                    first.iter_mut().zip(second).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
                }
                half *= 2;
            }
            block.iter_mut().for_each(|v| *v *= factor);
        }
        if inverse {
            signs(row);
        }
    });
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gradient at `x` of the sum of `f(x) * dy` by differences.
    fn differences(x: &[f64], dy: &[f64], f: impl Fn(Vec<f64>) -> Vec<f64>) -> Vec<f64> {
        const STEP: f64 = 1e-5;
        let moved = |i: usize, step: f64| {
            let mut x = x.to_vec();
            x[i] += step;
            dot(&f(x), dy)
        };
        (0..x.len()).map(|i| (moved(i, STEP) - moved(i, -STEP)) / (2.0 * STEP)).collect()
    }

    fn assert_near(a: &[f64], b: &[f64]) {
        let near = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-8);
        assert!(near, "{a:?} and {b:?}");
    }

    #[test]
    fn lengths_have_derivatives_at_both_rows() {
        let (x, y) = ([0.5, -1.0, 2.0, 0.75, 3.0, -0.25, 1.0, 1.5], [1.0, -2.0, 0.5, 0.25]);
        let dz = [1.0, 2.0, -0.5, 3.0, 0.25, 1.0, -2.0, 0.5];
        let [dx, dy] = as_long_back([&x, &y], dz.to_vec(), 2);
        assert_near(&dx, &differences(&x, &dz, |x| as_long(x, &y, 2)));
        assert_near(&dy, &differences(&y, &dz, |y| as_long(x.to_vec(), &y, 2)));
    }

    #[test]
    fn what_is_cut_off_moves_the_bound() {
        let x = [0.5, -1.0, 2.0, 0.75, 3.0, -0.25, 1.0, 1.5];
        let dy = [1.0, 2.0, -0.5, 3.0, 0.25, 1.0, -2.0, 0.5];
        for factor in [0.25, -0.5] {
            let by_steps = differences(&x, &dy, |x| cutoff(x, 4, factor));
            assert_near(&cutoff_back(&x, dy.to_vec(), 4, factor), &by_steps);
        }
        assert_eq!(cutoff_back(&[1.0; 4], vec![1.0; 4], 4, -1.0), [0.0; 4]);
    }
}
