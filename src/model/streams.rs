//! Several residual streams side by side, which every half of a block reads and writes: hyper-connections (Zhu and
//! others 2024), as Hunyuan 4 has them.
//!
//! The streams of a token follow each other. Their norm, all of them one row, gives two coefficients for each stream:
//! what the half sees is the sum of the streams times the first ones, and what it gives is added to each stream times
//! its second one. Behind the last block the streams become one by coefficients of their own.

use super::config::Streams;
use super::linear::Linear;
use super::pass::Pass;
use crate::ops::activation::sigmoid;
use crate::ops::norm::{Kind, Norm};

/// What reads the streams, and what is added to them.
pub struct Connection {
    sizes: Streams,
    /// Of all streams of a token.
    norm: Norm,
    /// From there to the coefficients.
    mixes: Linear,
    /// A factor on those of either kind.
    scales: Vec<f32>,
    /// What is added to each of them.
    bases: Vec<f32>,
}

impl Connection {
    /// With these tensors, and norms of this epsilon.
    pub fn new(sizes: Streams, eps: f32, mixes: Linear, scales: Vec<f32>, bases: Vec<f32>) -> Connection {
        let row = mixes.weight.cols;
        let norm = Norm { kind: Kind::Rms, eps, row, gains: vec![1.0; row], bias: None };
        Connection { sizes, norm, mixes, scales, bases }
    }

    /// What a half of a block sees of the streams `x`, `[tokens][streams][n_embd]`, and the coefficients of what it
    /// gives, `[tokens][streams]`, where there are any.
    pub fn read(&self, x: &[f32], pass: &Pass<'_, '_>) -> (Vec<f32>, Vec<f32>) {
        let Streams { count, eps, magnitude } = self.sizes;
        let normed = self.norm.apply(pass.isa(), x);
        let mixes = self.mixes.apply(&pass.activations_of(&normed, self.norm.row));
        let width = self.norm.row / count;
        let mut seen = Vec::with_capacity(x.len() / count);
        let mut given = Vec::new();
        let tokens = x.chunks_exact(self.norm.row);
        for (x, mixes) in tokens.zip(mixes.chunks_exact(self.bases.len())) {
            let of = |i: usize| sigmoid(mixes[i] * self.scales[i / count] + self.bases[i]);
            let from = seen.len();
            for (i, stream) in x.chunks_exact(width).enumerate() {
                let weight = of(i) + eps;
                match i {
                    0 => seen.extend(stream.iter().map(|x| x * weight)),
                    _ => {
                        let seen = seen[from..].iter_mut().zip(stream);
                        seen.for_each(|(y, x)| *y += x * weight);
                    }
                }
            }
            given.extend((count..self.bases.len()).map(|i| of(i) * magnitude + eps));
        }
        (seen, given)
    }

    /// Adds what a half of a block gives, `[tokens][n_embd]`, to the streams `x` times their coefficients.
    pub fn write(&self, x: &mut [f32], y: &[f32], coefficients: &[f32]) {
        write(x, y, coefficients, self.sizes.count);
    }
}

fn write(x: &mut [f32], y: &[f32], coefficients: &[f32], count: usize) {
    let width = y.len() / (coefficients.len() / count).max(1);
    let streams = x.chunks_exact_mut(width).zip(coefficients).enumerate();
    for (i, (stream, coefficient)) in streams {
        let y = &y[i / count * width..][..width];
        stream.iter_mut().zip(y).for_each(|(x, y)| *x += y * coefficient);
    }
}

/// Every row of `x`, `width` numbers, once for each stream.
pub fn open(x: &[f32], width: usize, count: usize) -> Vec<f32> {
    x.chunks_exact(width).flat_map(|row| row.repeat(count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_open_and_take_what_is_given() {
        let mut x = open(&[1.0, 2.0, 3.0, 4.0], 2, 2);
        assert_eq!(x, [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        write(&mut x, &[1.0, 1.0, 2.0, 2.0], &[1.0, 0.0, 0.5, 2.0], 2);
        assert_eq!(x, [2.0, 3.0, 1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
    }
}
