//! Several residual streams side by side: what a sublayer reads of them, how its output is written to them, and how
//! streams of earlier blocks are blended with the present one.

use super::activation::sigmoid;
use super::norm::Norm;
use super::soft_max::soft_max;
use crate::kernels::{Floats, Isa};
use crate::math::expf;
use crate::pool;

/// How hyper-connections turn projected numbers into coefficients: `sigmoid(number * scale + base)` for reading and
/// writing, and a matrix of `number * scale + base` for mixing.
#[derive(Clone, Debug)]
pub struct Streams {
    /// How many streams there are.
    pub count: usize,
    /// Added to all coefficients.
    pub eps: f32,
    /// Factor on the coefficients that outputs are written with.
    pub magnitude: f32,
    /// Added to those.
    pub offset: f32,
    /// How streams are mixed with one another when an output is written, where they are.
    pub mixing: Option<Mixing>,
    /// Factors on the numbers: those of reading, and those of writing and of mixing, where there are any.
    pub scales: Vec<f32>,
    /// Added to the products, one number for each coefficient.
    pub bases: Vec<f32>,
}

/// How the matrix that mixes streams is made of its numbers (ggml `ggml_dsv4_hc_comb`): a soft-max of each row, which
/// is a stream that is read, and then sums of columns and of rows that are made 1 by turns (Sinkhorn and Knopp 1967).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mixing {
    /// Divisions by the sums of columns; one fewer by those of rows, which stand between them.
    pub rounds: usize,
    /// Added to the elements at first, and to every sum.
    pub eps: f32,
}

impl Mixing {
    /// The matrix of numbers `m`, `[streams read][streams written]`, over them. A quotient is the product with the
    /// rounded inverse.
    fn apply(&self, m: &mut [f32], count: usize) {
        for row in m.chunks_exact_mut(count) {
            let max = row.iter().fold(f32::NEG_INFINITY, |max, &v| if max > v { max } else { v });
            row.iter_mut().for_each(|v| *v = expf(*v - max));
            let inverse = 1.0 / row.iter().fold(0.0, |sum, v| sum + v);
            row.iter_mut().for_each(|v| *v = *v * inverse + self.eps);
        }
        for round in 0..self.rounds {
            if round > 0 {
                for row in m.chunks_exact_mut(count) {
                    let inverse = 1.0 / row.iter().fold(self.eps, |sum, v| sum + v);
                    row.iter_mut().for_each(|v| *v *= inverse);
                }
            }
            for column in 0..count {
                let of_column = || (column..count * count).step_by(count);
                let inverse = 1.0 / of_column().fold(self.eps, |sum, i| sum + m[i]);
                of_column().for_each(|i| m[i] *= inverse);
            }
        }
    }
}

impl Streams {
    /// The sum of the streams `x`, `[tokens][streams][width]`, times their coefficients, and the coefficients that an
    /// output is written with, `[tokens][streams]`, of which each token's are followed by the matrix of [`Mixing`] where
    /// there is one. `numbers` are the projected ones, `[tokens][coefficients]`.
    pub fn read(&self, x: &[f32], numbers: &[f32]) -> [Floats; 2] {
        let (count, all) = (self.count, self.bases.len());
        let tokens = numbers.len() / all.max(1);
        let width = x.len() / tokens.max(1) / count;
        let mut read = Floats::scratch(tokens * width);
        let mut written = Floats::scratch(tokens * (all - count));
        let rows = x.chunks_exact(count * width).zip(numbers.chunks_exact(all));
        for (token, (x, numbers)) in rows.enumerate() {
            let inner = |i: usize| numbers[i] * self.scales[(i / count).min(2)] + self.bases[i];
            let of = |i: usize| sigmoid(inner(i));
            let read = &mut read[token * width..][..width];
            for (i, stream) in x.chunks_exact(width).enumerate() {
                let weight = of(i) + self.eps;
                let products = stream.iter().map(|x| x * weight);
                match i {
                    // a sum of negative zeros that begins with 0 is 0
                    0 if self.mixing.is_some() => read.iter_mut().zip(products).for_each(|(y, p)| *y = 0.0 + p),
                    0 => read.iter_mut().zip(products).for_each(|(y, p)| *y = p),
                    _ => read.iter_mut().zip(products).for_each(|(y, p)| *y += p),
                }
            }
            let written = &mut written[token * (all - count)..][..all - count];
            let (written, mixed) = written.split_at_mut(count.min(all - count));
            for (i, w) in written.iter_mut().enumerate() {
                *w = of(count + i) * self.magnitude + self.offset;
            }
            if let Some(mixing) = self.mixing {
                mixed.iter_mut().enumerate().for_each(|(i, w)| *w = inner(2 * count + i));
                mixing.apply(mixed, count);
            }
        }
        [read, written]
    }
}

/// Adds `y`, `[tokens][width]`, to each of `count` streams `x` of its token, times the stream's coefficient. Where
/// streams are `mixed`, each token's coefficients are followed by a matrix, and in the place of a stream comes the sum
/// of all of them times the elements of its column: behind the product with `y`, and in order.
pub fn write(x: &mut [f32], y: &[f32], coefficients: &[f32], count: usize, mixed: bool) {
    let all = coefficients_of(count, mixed);
    let width = y.len() / (coefficients.len() / all).max(1);
    let rows = x.chunks_exact_mut((count * width).max(1)).zip(y.chunks_exact(width.max(1)));
    for ((x, y), coefficients) in rows.zip(coefficients.chunks_exact(all)) {
        let (written, matrix) = coefficients.split_at(count);
        let before = if mixed { x.to_vec() } else { Vec::new() };
        for (i, (stream, coefficient)) in x.chunks_exact_mut(width).zip(written).enumerate() {
            if !mixed {
                stream.iter_mut().zip(y).for_each(|(x, y)| *x += y * coefficient);
                continue;
            }
            stream.iter_mut().zip(y).for_each(|(x, y)| *x = y * coefficient);
            for (before, row) in before.chunks_exact(width).zip(matrix.chunks_exact(count)) {
                stream.iter_mut().zip(before).for_each(|(x, before)| *x += before * row[i]);
            }
        }
    }
}

/// Numbers of a token with which an output is written to `count` streams, and these are `mixed` or not.
pub fn coefficients_of(count: usize, mixed: bool) -> usize {
    if mixed { count * (count + 1) } else { count }
}

/// Sums of the streams `x`, `[tokens][streams][width]`: stream `i` of the result is the sum of all streams times the
/// coefficients `[i]` of its token, `[tokens][streams][streams]`, whose products are added up in `f64` in order
/// (Gemma 3n).
pub fn sum(x: &[f32], coefficients: &[f32], count: usize) -> Floats {
    let mut y = Floats::scratch(x.len());
    let all = x.len() / (coefficients.len() / (count * count)).max(1);
    let width = (all / count).max(1);
    pool::chunks_mut(&mut y, all.max(1), |token, y| {
        let (x, matrix) = (&x[token * all..][..all], &coefficients[token * count * count..]);
        for (y, row) in y.chunks_exact_mut(width).zip(matrix.chunks_exact(count)) {
            for (i, y) in y.iter_mut().enumerate() {
                let products = row.iter().enumerate().map(|(k, c)| f64::from(x[k * width + i] * c));
                *y = products.fold(0f64, |sum, product| sum + product) as f32;
            }
        }
    });
    y
}

/// The mean of `streams`, `[tokens][width]` each, weighed by the soft-max of their scores (Kimi K3). A stream's score is
/// the sum of its norm's elements, added up in `f64`; the gains of the norm are the scores' weights.
pub fn blend(isa: Isa, scores: &Norm, streams: &[&[f32]]) -> Floats {
    let n = scores.row;
    let total = |row: &[f32]| row.iter().fold(0.0, |sum, &x| sum + f64::from(x)) as f32;
    let score = |stream: &&[f32]| -> Vec<f32> { scores.apply(isa, stream).chunks_exact(n).map(total).collect() };
    let scores: Vec<Vec<f32>> = streams.iter().map(score).collect();
    let mut y = Floats::scratch(streams.first().map_or(0, |x| x.len()));
    y.fill(0.0);
    for (token, y) in y.chunks_exact_mut(n).enumerate() {
        let mut weights: Vec<f32> = scores.iter().map(|s| s[token]).collect();
        soft_max(&mut weights);
        for (stream, &weight) in streams.iter().zip(&weights) {
            let stream = stream[token * n..][..n].iter();
            y.iter_mut().zip(stream).for_each(|(y, x)| *y += x * weight);
        }
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::norm::Kind;

    #[test]
    fn outputs_are_written_to_every_stream_times_its_coefficient() {
        let mut x = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0];
        write(&mut x, &[1.0, 1.0, 2.0, 2.0], &[1.0, 0.0, 0.5, 2.0], 2, false);
        assert_eq!(x, [2.0, 3.0, 1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
    }

    #[test]
    fn streams_are_summed_by_the_rows_of_a_matrix() {
        let x = [1.0, 2.0, 3.0, 5.0, 1.0, 0.0, 0.0, 1.0];
        let y = sum(&x, &[1.0, 1.0, 2.0, -1.0, 0.0, 0.5, 1.0, 0.0], 2);
        assert_eq!(*y, [4.0, 7.0, -1.0, -1.0, 0.0, 0.5, 1.0, 0.0]);
        // 2^24 + 1 is no single, and the one is not lost
        let y = sum(&[16_777_216.0, 1.0, -16_777_216.0], &[1.0; 9], 3);
        assert_eq!(*y, [1.0; 3]);
    }

    #[test]
    fn streams_are_read_by_their_coefficients() {
        // numbers of 0 are coefficients of one half
        let streams = Streams {
            count: 2,
            eps: 0.5,
            magnitude: 4.0,
            offset: 0.5,
            mixing: None,
            scales: vec![1.0, 1.0],
            bases: vec![0.0; 4],
        };
        let [read, written] = streams.read(&[1.0, 2.0, 3.0, 5.0], &[0.0; 4]);
        assert_eq!((&*read, &*written), (&[4.0, 7.0][..], &[2.5, 2.5][..]));
    }

    #[test]
    fn streams_are_mixed_by_a_matrix_whose_columns_add_up_to_1() {
        let mixing = Some(Mixing { rounds: 3, eps: 0.0 });
        let numbers = [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, -1.0, 3.0];
        let streams = Streams {
            count: 2,
            eps: 0.0,
            magnitude: 2.0,
            offset: 0.0,
            mixing,
            scales: vec![1.0; 3],
            bases: vec![0.0; 8],
        };
        let [_, written] = streams.read(&[1.0, 2.0], &numbers);
        assert_eq!(written.len(), coefficients_of(2, true));
        assert_eq!(written[..2], [1.0; 2]);
        let [a, b, c, d] = written[2..] else { unreachable!() };
        for sum in [a + c, b + d] {
            assert!((sum - 1.0).abs() < 1e-6, "{:?}", &*written);
        }
        // rows were soft-maxes, of which the second one prefers its second stream more
        assert!(a > c && d > b);
        let mut x = [1.0, 2.0];
        write(&mut x, &[10.0], &[1.0, 0.5, 0.25, 0.5, 2.0, 4.0], 2, true);
        assert_eq!(x, [10.0 + 0.25 + 4.0, 5.0 + 0.5 + 8.0]);
    }

    #[test]
    fn streams_are_weighed_by_their_scores() {
        let scores = Norm { kind: Kind::Rms, eps: 0.0, row: 2, gains: vec![2.0, 1.0], bias: None };
        let isa = Isa::detect();
        let x = [3.0, 3.0, -1.0, 1.0];
        // equal scores: the first token's streams are parallel
        let y = blend(isa, &scores, &[&[1.0, 1.0, 1.0, -1.0], &x]);
        assert_eq!(y[..2], [2.0, 2.0]);
        // scores 1 and -1 of the second: the first stream counts e^2 times as much
        let e = crate::math::expf(2.0);
        let expected = (e - 1.0) / (e + 1.0);
        assert!((y[2] - expected).abs() < 1e-6, "{:?}", &*y);
    }
}
