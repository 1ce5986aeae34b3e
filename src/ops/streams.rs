//! Several residual streams side by side: what a sublayer reads of them, how its output is written to them, and how
//! streams of earlier blocks are blended with the present one.

use super::activation::sigmoid;
use super::norm::Norm;
use super::soft_max::soft_max;
use crate::kernels::{Floats, Isa};

/// How hyper-connections turn projected numbers into coefficients: `sigmoid(number * scale + base)`.
#[derive(Clone, Debug)]
pub struct Streams {
    /// How many streams there are.
    pub count: usize,
    /// Added to all coefficients.
    pub eps: f32,
    /// Factor on the coefficients that outputs are written with.
    pub magnitude: f32,
    /// Factors on the numbers: those of reading, and those of writing, where there are any.
    pub scales: Vec<f32>,
    /// Added to the products, one number for each coefficient.
    pub bases: Vec<f32>,
}

impl Streams {
    /// The sum of the streams `x`, `[tokens][streams][width]`, times their coefficients, and the coefficients that an
    /// output is written with, `[tokens][streams]`. `numbers` are the projected ones, `[tokens][coefficients]`.
    pub fn read(&self, x: &[f32], numbers: &[f32]) -> [Floats; 2] {
        let (count, all) = (self.count, self.bases.len());
        let tokens = numbers.len() / all.max(1);
        let width = x.len() / tokens.max(1) / count;
        let mut read = Floats::scratch(tokens * width);
        let mut written = Floats::scratch(tokens * (all - count));
        let rows = x.chunks_exact(count * width).zip(numbers.chunks_exact(all));
        for (token, (x, numbers)) in rows.enumerate() {
            let of = |i: usize| sigmoid(numbers[i] * self.scales[i / count] + self.bases[i]);
            let read = &mut read[token * width..][..width];
            for (i, stream) in x.chunks_exact(width).enumerate() {
                let weight = of(i) + self.eps;
                let products = stream.iter().map(|x| x * weight);
                match i {
                    0 => read.iter_mut().zip(products).for_each(|(y, p)| *y = p),
                    _ => read.iter_mut().zip(products).for_each(|(y, p)| *y += p),
                }
            }
            let written = &mut written[token * (all - count)..][..all - count];
            for (i, w) in written.iter_mut().enumerate() {
                *w = of(count + i) * self.magnitude + self.eps;
            }
        }
        [read, written]
    }
}

/// Adds `y`, `[tokens][width]`, to each of `count` streams `x` of its token, times the stream's coefficient.
pub fn write(x: &mut [f32], y: &[f32], coefficients: &[f32], count: usize) {
    let width = y.len() / (coefficients.len() / count).max(1);
    for (i, (stream, coefficient)) in x.chunks_exact_mut(width).zip(coefficients).enumerate() {
        let y = &y[i / count * width..][..width];
        stream.iter_mut().zip(y).for_each(|(x, y)| *x += y * coefficient);
    }
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
        write(&mut x, &[1.0, 1.0, 2.0, 2.0], &[1.0, 0.0, 0.5, 2.0], 2);
        assert_eq!(x, [2.0, 3.0, 1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
    }

    #[test]
    fn streams_are_read_by_their_coefficients() {
        // numbers of 0 are coefficients of one half
        let streams = Streams { count: 2, eps: 0.5, magnitude: 4.0, scales: vec![1.0, 1.0], bases: vec![0.0; 4] };
        let [read, written] = streams.read(&[1.0, 2.0, 3.0, 5.0], &[0.0; 4]);
        assert_eq!((&*read, &*written), (&[4.0, 7.0][..], &[2.5, 2.5][..]));
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
