//! Rotary position embedding.

use rayon::prelude::*;

use crate::math::{logf, powf, sincosf};

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pairing {
    /// `(2j, 2j + 1)`: llama.
    Adjacent,
    /// `(j, j + n_rot / 2)`: GPT-NeoX, gemma, bitnet.
    Halves,
}

/// YaRN's blend of interpolated and extrapolated angles.
#[derive(Clone, Debug)]
pub struct Yarn {
    /// Weight of the blend, 1 for models trained with YaRN.
    pub ext_factor: f32,
    /// Pairs outside `low..high` are wholly extrapolated or interpolated.
    pub corr_dims: [f32; 2],
}

/// The angles of one kind of layer.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Rotated elements per head, even.
    pub n_rot: usize,
    /// Pairing of the elements.
    pub pairing: Pairing,
    /// Frequency base.
    pub base: f32,
    /// Factor on every angle: the inverse of the linear scaling factor.
    pub freq_scale: f32,
    /// Factor on sine and cosine.
    pub attn_factor: f32,
    /// Divisors per pair (`rope_freqs.weight`), empty for none.
    pub freq_factors: Vec<f32>,
    /// YaRN, where the model asks for it.
    pub yarn: Option<Yarn>,
}

impl Yarn {
    /// The band of pairs between extrapolation and interpolation (ggml `ggml_rope_yarn_corr_dims`).
    pub fn new(
        n_rot: usize,
        n_ctx_orig: u32,
        base: f32,
        ext_factor: f32,
        beta_fast: f32,
        beta_slow: f32,
    ) -> Yarn {
        let dim = |turns: f32| {
            n_rot as f32 * logf(n_ctx_orig as f32 / (turns * 2.0 * std::f32::consts::PI))
                / (2.0 * logf(base))
        };
        let low = dim(beta_fast).floor().max(0.0);
        let high = dim(beta_slow).ceil().min(n_rot as f32 - 1.0);
        Yarn {
            ext_factor,
            corr_dims: [low, high],
        }
    }
}

/// Sines and cosines of consecutive positions, `n_rot / 2` pairs of `(cos, sin)` each.
pub struct Table {
    pairs: Vec<(f32, f32)>,
    per_position: usize,
}

impl Table {
    /// `(cos, sin)` of every pair at the position number `i` of the table.
    pub fn position(&self, i: usize) -> &[(f32, f32)] {
        &self.pairs[i * self.per_position..][..self.per_position]
    }
}

impl Rope {
    /// The table for positions `from..from + count`.
    ///
    /// The angle of pair `j` is the position times `base^(-2/n_rot)`, multiplied up `j` times in `f32`
    /// (not a power per pair), then divided by the pair's factor and scaled.
    pub fn table(&self, from: usize, count: usize) -> Table {
        let half = self.n_rot / 2;
        let step = powf(self.base, -2.0 / self.n_rot as f32);
        let mut pairs = vec![(0.0, 0.0); half * count];
        pairs
            .par_chunks_mut(half.max(1))
            .enumerate()
            .for_each(|(i, row)| {
                let mut theta = (from + i) as f32;
                for (j, pair) in row.iter_mut().enumerate() {
                    let factor = self.freq_factors.get(j).copied().unwrap_or(1.0);
                    *pair = self.cos_sin(theta / factor, j);
                    theta *= step;
                }
            });
        Table {
            pairs,
            per_position: half,
        }
    }

    fn cos_sin(&self, extrapolated: f32, pair: usize) -> (f32, f32) {
        let mut theta = self.freq_scale * extrapolated;
        let mut magnitude = self.attn_factor;
        if let Some(yarn) = &self.yarn {
            let [low, high] = yarn.corr_dims;
            let y = (pair as f32 - low) / (high - low).max(0.001);
            let mix = (1.0 - y.clamp(0.0, 1.0)) * yarn.ext_factor;
            theta = theta * (1.0 - mix) + extrapolated * mix;
            magnitude *= 1.0 + 0.1 * logf(1.0 / self.freq_scale);
        }
        let (sin, cos) = sincosf(theta);
        (cos * magnitude, sin * magnitude)
    }

    /// Rotates every head of `x`, `[tokens][heads][head_dim]`; token `i` takes position `i` of `table`.
    /// Elements beyond `n_rot` keep their value.
    pub fn apply(&self, x: &mut [f32], width: usize, head_dim: usize, table: &Table) {
        let half = self.n_rot / 2;
        x.par_chunks_mut(width)
            .enumerate()
            .for_each(|(token, row)| {
                let pairs = &table.position(token)[..half];
                for head in row.chunks_exact_mut(head_dim) {
                    match self.pairing {
                        Pairing::Adjacent => {
                            for (x, &(c, s)) in head[..self.n_rot].chunks_exact_mut(2).zip(pairs) {
                                (x[0], x[1]) = rotate(x[0], x[1], c, s);
                            }
                        }
                        Pairing::Halves => {
                            let (first, second) = head[..self.n_rot].split_at_mut(half);
                            for ((a, b), &(c, s)) in first.iter_mut().zip(second).zip(pairs) {
                                (*a, *b) = rotate(*a, *b, c, s);
                            }
                        }
                    }
                }
            });
    }
}

#[inline(always)]
fn rotate(a: f32, b: f32, c: f32, s: f32) -> (f32, f32) {
    (a * c - b * s, a * s + b * c)
}
