//! Several residual streams side by side, with their derivatives.

use super::elements::{add, dot, sigmoid, sigmoid_slope};
use super::real::Real;
use crate::ops::streams::{Mixing, Streams, coefficients_of};

/// A coefficient of hyper-connections before its function: the number `i` of a token, and its factor.
fn inner<T: Real>(streams: &Streams, numbers: &[T], i: usize) -> (T, T) {
    let scale = T::of(streams.scales[(i / streams.count).min(2)].into());
    (numbers[i] * scale + T::of(streams.bases[i].into()), scale)
}

/// The results of [`Streams::read`].
pub fn read<T: Real>(streams: &Streams, x: &[T], numbers: &[T]) -> [Vec<T>; 2] {
    let (count, all) = (streams.count, streams.bases.len());
    let width = x.len() / (numbers.len() / all) / count;
    let (eps, magnitude, offset) = (T::single(streams.eps), T::single(streams.magnitude), T::single(streams.offset));
    let mut read = vec![T::default(); x.len() / count];
    let mut written = Vec::new();
    for ((x, numbers), read) in x.chunks(count * width).zip(numbers.chunks(all)).zip(read.chunks_mut(width)) {
        let of = |i: usize| sigmoid(inner(streams, numbers, i).0);
        for (i, stream) in x.chunks_exact(width).enumerate() {
            let weight = of(i) + eps;
            read.iter_mut().zip(stream).for_each(|(y, &x)| *y += x * weight);
        }
        written.extend((count..all.min(2 * count)).map(|i| of(i) * magnitude + offset));
        if let Some(mixing) = streams.mixing {
            let matrix: Vec<T> = (2 * count..all).map(|i| inner(streams, numbers, i).0).collect();
            written.extend(Balance::of(mixing, matrix, count).matrix);
        }
    }
    [read, written]
}

/// The gradients at the streams and at the numbers, from those at what is read and at the coefficients.
pub fn read_back<T: Real>(
    streams: &Streams,
    x: &[T],
    numbers: &[T],
    [read, written]: [Option<&[T]>; 2],
) -> [Vec<T>; 2] {
    let (count, all) = (streams.count, streams.bases.len());
    let width = x.len() / (numbers.len() / all) / count;
    let (eps, magnitude) = (T::single(streams.eps), T::single(streams.magnitude));
    let (mut dx, mut d_numbers) = (vec![T::default(); x.len()], vec![T::default(); numbers.len()]);
    let rows = x.chunks(count * width).zip(numbers.chunks(all)).zip(dx.chunks_mut(count * width));
    for (token, (((x, numbers), dx), d_numbers)) in rows.zip(d_numbers.chunks_mut(all)).enumerate() {
        let written = written.map(|d| &d[token * (all - count)..][..all - count]);
        for (i, d_number) in d_numbers.iter_mut().enumerate().take(2 * count) {
            let (z, scale) = inner(streams, numbers, i);
            let slope = sigmoid_slope(z) * scale;
            if i >= count {
                *d_number = written.map_or(T::default(), |d| d[i - count]) * magnitude * slope;
            } else if let Some(d) = read {
                let (d, weight) = (&d[token * width..][..width], sigmoid(z) + eps);
                *d_number = dot(d, &x[i * width..][..width]) * slope;
                dx[i * width..][..width].iter_mut().zip(d).for_each(|(dx, &d)| *dx = d * weight);
            }
        }
        if let Some((mixing, written)) = streams.mixing.zip(written) {
            let matrix: Vec<T> = (2 * count..all).map(|i| inner(streams, numbers, i).0).collect();
            let given = Balance::of(mixing, matrix, count).backward(written[count..].to_vec());
            for (i, d) in given.into_iter().enumerate() {
                d_numbers[2 * count + i] = d * inner(streams, numbers, 2 * count + i).1;
            }
        }
    }
    [dx, d_numbers]
}

/// Sums of the streams `x` by the matrix of coefficients of each token.
pub fn sum<T: Real>(x: &[T], coefficients: &[T], count: usize) -> Vec<T> {
    let all = x.len() / (coefficients.len() / (count * count));
    let mut y = vec![T::default(); x.len()];
    let rows = x.chunks(all).zip(y.chunks_mut(all)).zip(coefficients.chunks(count * count));
    for ((x, y), matrix) in rows {
        for (y, row) in y.chunks_mut(all / count).zip(matrix.chunks(count)) {
            for (x, &c) in x.chunks(all / count).zip(row) {
                y.iter_mut().zip(x).for_each(|(y, &x)| *y += x * c);
            }
        }
    }
    y
}

/// The gradients at the streams and at the coefficients from that at the result of [`sum`].
pub fn sum_back<T: Real>([x, coefficients]: [&[T]; 2], dy: &[T], count: usize) -> [Vec<T>; 2] {
    let all = x.len() / (coefficients.len() / (count * count));
    let (mut dx, mut dc) = (vec![T::default(); x.len()], Vec::with_capacity(coefficients.len()));
    let rows = x.chunks(all).zip(dx.chunks_mut(all)).zip(dy.chunks(all));
    for (((x, dx), dy), matrix) in rows.zip(coefficients.chunks(count * count)) {
        for (dy, row) in dy.chunks(all / count).zip(matrix.chunks(count)) {
            let streams = x.chunks(all / count).zip(dx.chunks_mut(all / count));
            for ((x, dx), &c) in streams.zip(row) {
                dc.push(dot(dy, x));
                dx.iter_mut().zip(dy).for_each(|(dx, &dy)| *dx += dy * c);
            }
        }
    }
    [dx, dc]
}

/// The matrix that mixes streams, and what its derivative needs of the way to it.
struct Balance<T> {
    count: usize,
    /// The soft-max of each row.
    soft_max: Vec<T>,
    /// Each division: the quotients, the inverses of the sums, and true if these are of columns.
    divisions: Vec<(Vec<T>, Vec<T>, bool)>,
    /// The result.
    matrix: Vec<T>,
}

impl<T: Real> Balance<T> {
    fn of(mixing: Mixing, mut m: Vec<T>, count: usize) -> Balance<T> {
        let (one, eps) = (T::of(1.0), T::single(mixing.eps));
        for row in m.chunks_exact_mut(count) {
            let max = row.iter().fold(f64::NEG_INFINITY, |max, v| max.max(v.wide()));
            row.iter_mut().for_each(|v| *v = (*v - T::of(max)).exp());
            let sum = row.iter().fold(T::default(), |sum, &v| sum + v);
            row.iter_mut().for_each(|v| *v = *v / sum);
        }
        let soft_max = m.clone();
        m.iter_mut().for_each(|v| *v += eps);
        let mut divisions = Vec::new();
        // columns first, then rows and columns
        for division in 0..(2 * mixing.rounds).saturating_sub(1) {
            let columns = division % 2 == 0;
            let mut sums = vec![eps; count];
            m.iter().enumerate().for_each(|(i, &v)| sums[line(i, count, columns)] += v);
            let inverses: Vec<T> = sums.into_iter().map(|sum| one / sum).collect();
            m.iter_mut().enumerate().for_each(|(i, v)| *v *= inverses[line(i, count, columns)]);
            divisions.push((m.clone(), inverses, columns));
        }
        Balance { count, soft_max, divisions, matrix: m }
    }

    /// The gradient at the numbers from that at the matrix.
    fn backward(&self, mut d: Vec<T>) -> Vec<T> {
        for (quotients, inverses, columns) in self.divisions.iter().rev() {
            let of = |i: usize| line(i, self.count, *columns);
            let mut along = vec![T::default(); self.count];
            d.iter().zip(quotients).enumerate().for_each(|(i, (&d, &q))| along[of(i)] += d * q);
            d.iter_mut().enumerate().for_each(|(i, d)| *d = (*d - along[of(i)]) * inverses[of(i)]);
        }
        for (d, p) in d.chunks_exact_mut(self.count).zip(self.soft_max.chunks_exact(self.count)) {
            let along = dot(d, p);
            d.iter_mut().zip(p).for_each(|(d, &p)| *d = (*d - along) * p);
        }
        d
    }
}

/// The column, or the row, of element number `i` of a square matrix.
fn line(i: usize, count: usize, columns: bool) -> usize {
    if columns { i % count } else { i / count }
}

/// `x`, and `y` added to each of `count` streams times its coefficient; where they are `mixed`, the sums of all streams
/// in the place of each.
pub fn write<T: Real>(x: &[T], y: &[T], coefficients: &[T], count: usize, mixed: bool) -> Vec<T> {
    let all = coefficients_of(count, mixed);
    let width = y.len() / (coefficients.len() / all);
    let mut out = if mixed { vec![T::default(); x.len()] } else { x.to_vec() };
    let rows = out.chunks_exact_mut(count * width).zip(x.chunks_exact(count * width)).zip(y.chunks_exact(width));
    for (((out, x), y), coefficients) in rows.zip(coefficients.chunks_exact(all)) {
        let (written, matrix) = coefficients.split_at(count);
        for (i, (out, &coefficient)) in out.chunks_exact_mut(width).zip(written).enumerate() {
            out.iter_mut().zip(y).for_each(|(out, &y)| *out += y * coefficient);
            for (x, row) in x.chunks_exact(width).zip(matrix.chunks_exact(count)) {
                out.iter_mut().zip(x).for_each(|(out, &x)| *out += x * row[i]);
            }
        }
    }
    out
}

/// The gradients at the streams, at `y` and at the coefficients.
pub fn write_back<T: Real>(d: Vec<T>, [x, y, coefficients]: [&[T]; 3], count: usize, mixed: bool) -> [Vec<T>; 3] {
    let all = coefficients_of(count, mixed);
    let width = y.len() / (coefficients.len() / all);
    let mut dx = if mixed { vec![T::default(); d.len()] } else { d.clone() };
    let (mut dy, mut d_coefficients) = (vec![T::default(); y.len()], vec![T::default(); coefficients.len()]);
    for token in 0..coefficients.len() / all {
        let (streams, row) = (token * count * width..(token + 1) * count * width, token * width..(token + 1) * width);
        let x = x.get(streams.clone()).unwrap_or_default();
        let (d, dx) = (&d[streams.clone()], &mut dx[streams]);
        let (written, matrix) = coefficients[token * all..][..all].split_at(count);
        let (d_written, d_matrix) = d_coefficients[token * all..][..all].split_at_mut(count);
        for (i, d) in d.chunks_exact(width).enumerate() {
            dy[row.clone()].iter_mut().zip(d).for_each(|(dy, &d)| *dy += d * written[i]);
            d_written[i] = dot(d, &y[row.clone()]);
            for (from, row) in matrix.chunks_exact(count).enumerate() {
                let stream = from * width..(from + 1) * width;
                d_matrix[from * count + i] = dot(d, &x[stream.clone()]);
                let scaled: Vec<T> = d.iter().map(|&d| d * row[i]).collect();
                add(&mut dx[stream], &scaled);
            }
        }
    }
    [dx, dy, d_coefficients]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without a pattern, between -1 and 1.
    fn numbers(n: usize, seed: usize) -> Vec<f64> {
        (0..n).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.0 - 1.0).collect()
    }

    /// The derivative of `f` at each number of `x`, by central differences.
    fn differences(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        const STEP: f64 = 1e-5;
        let at = |i: usize, by: f64| {
            let mut x = x.to_vec();
            x[i] += by;
            f(&x)
        };
        (0..x.len()).map(|i| (at(i, STEP) - at(i, -STEP)) / (2.0 * STEP)).collect()
    }

    #[test]
    fn sums_of_streams_have_derivatives_at_streams_and_coefficients() {
        let (x, c, dy) = (numbers(2 * 3 * 2, 1), numbers(2 * 9, 2), numbers(2 * 3 * 2, 3));
        let [dx, dc] = sum_back([&x, &c], &dy, 3);
        near(&dx, &differences(&x, |x| dot(&sum(x, &c, 3), &dy)));
        near(&dc, &differences(&c, |c| dot(&sum(&x, c, 3), &dy)));
    }

    fn near(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (i, (g, e)) in got.iter().zip(expected).enumerate() {
            assert!((g - e).abs() < 1e-8 * (1.0 + e.abs()), "{i}: {g} and {e}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of losses")]
    fn gradients_at_streams_and_coefficients_are_differences() {
        let (tokens, count, width) = (2, 3, 4);
        for mixing in [None, Some(Mixing { rounds: 3, eps: 1e-3 })] {
            let all = count + coefficients_of(count, mixing.is_some());
            let bases = numbers(all, 3).iter().map(|&v| v as f32).collect();
            let streams =
                Streams { count, eps: 0.01, magnitude: 2.0, offset: 0.5, mixing, scales: vec![0.5, 1.5, 2.5], bases };
            let (x, n) = (numbers(tokens * count * width, 1), numbers(tokens * all, 2));
            let (y, dy) = (numbers(tokens * width, 4), numbers(tokens * count * width, 5));
            let d_read = numbers(tokens * width, 6);
            // what is read counts by `d_read`, what is written of `y` by `dy`
            let loss = |x: &[f64], n: &[f64], y: &[f64]| {
                let [input, coefficients] = read(&streams, x, n);
                let out = write(x, y, &coefficients, count, mixing.is_some());
                dot(&input, &d_read) + dot(&out, &dy)
            };
            let [_, coefficients] = read(&streams, &x, &n);
            let [mut at_x, at_y, at_coefficients] =
                write_back(dy.clone(), [&x, &y, &coefficients], count, mixing.is_some());
            let [more, at_n] = read_back(&streams, &x, &n, [Some(&d_read), Some(&at_coefficients)]);
            add(&mut at_x, &more);
            near(&at_x, &differences(&x, |x| loss(x, &n, &y)));
            near(&at_n, &differences(&n, |n| loss(&x, n, &y)));
            near(&at_y, &differences(&y, |y| loss(&x, &n, y)));
        }
    }
}
