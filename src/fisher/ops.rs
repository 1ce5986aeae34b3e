//! The pointwise operations of a block, forwards and backwards: RMS norm, RoPE, gated activations.

use rayon::prelude::*;

use super::real::Real;
use crate::model::Config;
use crate::ops::activation::Activation;
use crate::ops::rope::{Pairing, Rope};

/// Elements handed to a thread at a time.
const CHUNK: usize = 1 << 14;

/// RMS norm over rows of `weight.len()` elements: `y = x * r * w`, `r = 1 / sqrt(mean(x^2) + eps)`.
pub struct Norm<T> {
    /// One factor per element of a row.
    pub weight: Vec<T>,
    /// Added to the mean square.
    pub eps: f64,
}

impl<T: Real> Norm<T> {
    /// A norm of a model.
    pub fn new(weight: Vec<T>, c: &Config) -> Norm<T> {
        Norm { weight, eps: c.eps.into() }
    }

    /// The normed rows.
    pub fn forward(&self, x: &[T]) -> Vec<T> {
        let mut y = x.to_vec();
        self.by_rows(&mut y, |row| {
            let r = T::of(self.inverse(row));
            row.iter_mut().zip(&self.weight).for_each(|(v, &w)| *v = *v * r * w);
        });
        y
    }

    /// From the gradient at the result to that at `x`, in place:
    /// `dx = r * (w * dy - x * r^2 * mean(w * dy * x))`.
    pub fn backward(&self, x: &[T], dy: &mut [T]) {
        let n = self.weight.len();
        dy.par_chunks_mut(n * 16).zip(x.par_chunks(n * 16)).for_each(|(dy, x)| {
            for (dy, x) in dy.chunks_exact_mut(n).zip(x.chunks_exact(n)) {
                let r = self.inverse(x);
                let terms = dy.iter().zip(x).zip(&self.weight);
                let dot = terms.fold(0.0, |s, ((d, x), w)| s + (*w * *d).wide() * x.wide());
                let (scale, along) = (T::of(r), T::of(r * r * r * dot / n as f64));
                for ((d, &x), &w) in dy.iter_mut().zip(x).zip(&self.weight) {
                    *d = scale * (w * *d) - x * along;
                }
            }
        });
    }

    fn inverse(&self, row: &[T]) -> f64 {
        let sum = row.iter().fold(0.0, |s, v| s + v.wide() * v.wide());
        1.0 / (sum / row.len() as f64 + self.eps).sqrt()
    }

    fn by_rows(&self, x: &mut [T], each: impl Fn(&mut [T]) + Sync) {
        let n = self.weight.len();
        x.par_chunks_mut(n * 16).for_each(|rows| rows.chunks_exact_mut(n).for_each(&each));
    }
}

/// Which way RoPE turns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// By the position's angles.
    Forward,
    /// Back by them: the transposed matrix, which takes gradients through.
    Back,
}

/// RoPE on all heads of `x`, `[tokens][heads * head_dim]`; `angles`: cosine and sine per position and pair.
pub fn rotate<T: Real>(x: &mut [T], width: usize, head: usize, rope: &Rope, angles: &[Vec<(f32, f32)>], turn: Turn) {
    let (n, half) = (rope.n_rot, rope.n_rot / 2);
    x.par_chunks_mut(width).enumerate().for_each(|(i, row)| {
        let pairs: Vec<(T, T)> = angles[i]
            .iter()
            .map(|&(cos, sin)| {
                let sin = if turn == Turn::Back { -sin } else { sin };
                (T::of(cos.into()), T::of(sin.into()))
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

/// A gate's function that has a slope.
pub trait Differentiable: Copy + Sync {
    /// Value and slope.
    fn at<T: Real>(self, x: T) -> (T, T);

    /// `act(gate) * up`.
    fn gated<T: Real>(self, gate: &[T], up: &[T]) -> Vec<T> {
        let mut out = gate.to_vec();
        out.par_chunks_mut(CHUNK).zip(up.par_chunks(CHUNK)).for_each(|(g, u)| {
            g.iter_mut().zip(u).for_each(|(g, &u)| *g = self.at(*g).0 * u);
        });
        out
    }

    /// The gradients at gate and up from that at their product.
    fn gated_back<T: Real>(self, gate: &[T], up: &[T], mut dy: Vec<T>) -> [Vec<T>; 2] {
        let mut d_gate = gate.to_vec();
        d_gate.par_chunks_mut(CHUNK).zip(up.par_chunks(CHUNK)).zip(dy.par_chunks_mut(CHUNK)).for_each(|((g, u), d)| {
            for ((g, &u), d) in g.iter_mut().zip(u).zip(d) {
                let (value, slope) = self.at(*g);
                (*g, *d) = (*d * u * slope, *d * value);
            }
        });
        [d_gate, dy]
    }
}

impl Differentiable for Activation {
    #[inline(always)]
    fn at<T: Real>(self, x: T) -> (T, T) {
        let (zero, one) = (T::default(), T::of(1.0));
        match self {
            Activation::Silu => {
                let s = one / (one + (-x).exp());
                (x * s, s * (one + x * (one - s)))
            }
            Activation::Gelu => {
                let (root, cubic) = (T::of(0.797_884_560_802_865_4), T::of(0.044_715));
                let t = (root * x * (one + cubic * x * x)).tanh();
                let half = T::of(0.5);
                let inner = root * (one + T::of(3.0) * cubic * x * x);
                let slope = half * (one + t) + half * x * (one - t * t) * inner;
                (half * x * (one + t), slope)
            }
            Activation::SquaredRelu => {
                let r = if x > zero { x } else { zero };
                (r * r, r + r)
            }
            other => panic!("{other:?}: models without gradients are refused when loading"),
        }
    }
}

/// `x += y`.
pub fn add<T: Real>(x: &mut [T], y: &[T]) {
    debug_assert_eq!(x.len(), y.len());
    x.iter_mut().zip(y).for_each(|(x, &y)| *x += y);
}
