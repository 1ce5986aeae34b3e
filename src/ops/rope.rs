//! Rotary position embedding.

use super::CHUNK;
pub use crate::arch::Pairing;
use crate::kernels::{Isa, elements};
use crate::math::{logf, powf, sincosf};
use crate::pool;

/// YaRN's blend of interpolated and extrapolated angles.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// Weight of the blend, 1 for models trained with YaRN.
    pub ext_factor: f32,
    /// Pairs outside `low..high` are wholly extrapolated or interpolated.
    pub corr_dims: [f32; 2],
}

/// The angles of one kind of layer.
#[derive(Clone, Debug, PartialEq)]
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
    pub fn new(n_rot: usize, n_ctx_orig: u32, base: f32, ext_factor: f32, beta_fast: f32, beta_slow: f32) -> Yarn {
        let dim = |turns: f32| {
            n_rot as f32 * logf(n_ctx_orig as f32 / (turns * 2.0 * std::f32::consts::PI)) / (2.0 * logf(base))
        };
        let low = dim(beta_fast).floor().max(0.0);
        let high = dim(beta_slow).ceil().min(n_rot as f32 - 1.0);
        Yarn { ext_factor, corr_dims: [low, high] }
    }
}

/// Factors of the positions of some rows.
///
/// In the pairing by halves, pairs are rotated with the cosines and sines of the `n_rot / 2` pairs. Neighbours take
/// every cosine twice and every sine as `(-sin, sin)`: negation is exact and addition commutes, so `x0 cos + x1 (-sin)`
/// and `x1 cos + x0 sin` equal the formula.
#[derive(Default)]
pub struct Table {
    /// Per position the cosines, then the sines.
    both: Vec<f32>,
    per_position: usize,
}

/// A rotation other than that of queries and keys by their positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Elements of a head.
    pub head: usize,
    /// True if the angles are negative (ggml `ggml_rope_back`).
    pub back: bool,
    /// Positions of a block, all of which turn by the first one.
    pub block: usize,
}

impl Turn {
    /// Cosine and sine of every pair at a position, by those of the rotation itself.
    pub fn pairs(self, position: usize, of: &dyn Fn(usize) -> Vec<(f32, f32)>) -> Vec<(f32, f32)> {
        let block = self.block.max(1);
        let turned = |(cos, sin): (f32, f32)| (cos, if self.back { -sin } else { sin });
        of(position / block * block).into_iter().map(turned).collect()
    }

    /// The factors of the positions of some rows.
    pub fn table(self, rope: &Rope, positions: &[usize]) -> Table {
        let block = self.block.max(1);
        let positions: Vec<usize> = positions.iter().map(|position| position / block * block).collect();
        let mut table = rope.table(&positions);
        if self.back {
            let n = table.per_position;
            let rows = table.both.chunks_exact_mut((2 * n).max(1));
            rows.flat_map(|row| &mut row[n..]).for_each(|sine| *sine = -*sine);
        }
        table
    }
}

impl Rope {
    /// The table for `positions`, a row each.
    ///
    /// The angle of pair `j` is the position times `base^(-2/n_rot)`, multiplied up `j` times in `f32`
    /// (not a power per pair), then divided by the pair's factor and scaled.
    pub fn table(&self, positions: &[usize]) -> Table {
        let half = self.n_rot / 2;
        let per_position = match self.pairing {
            Pairing::Adjacent => self.n_rot,
            Pairing::Halves => half,
        };
        let step = self.step();
        let mut both = vec![0f32; 2 * per_position * positions.len()];
        pool::chunks_mut(&mut both, (2 * per_position).max(1), |i, row| {
            let (cos, sin) = row.split_at_mut(per_position);
            for (j, (c, s)) in self.angles(positions[i], step).enumerate() {
                match self.pairing {
                    Pairing::Adjacent => {
                        cos[2 * j..][..2].fill(c);
                        (sin[2 * j], sin[2 * j + 1]) = (-s, s);
                    }
                    Pairing::Halves => (cos[j], sin[j]) = (c, s),
                }
            }
        });
        Table { both, per_position }
    }

    /// `(cos, sin)` of every pair at `position`.
    pub fn pairs(&self, position: usize) -> Vec<(f32, f32)> {
        self.angles(position, self.step()).collect()
    }

    fn step(&self) -> f32 {
        powf(self.base, -2.0 / self.n_rot as f32)
    }

    fn angles(&self, position: usize, step: f32) -> impl Iterator<Item = (f32, f32)> {
        let mut theta = position as f32;
        (0..self.n_rot / 2).map(move |j| {
            let factor = self.freq_factors.get(j).copied().unwrap_or(1.0);
            let pair = self.cos_sin(theta / factor, j);
            theta *= step;
            pair
        })
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

    /// Rotates every head of `x`, `[tokens][heads][head_dim]`; token `i` takes row `i` of `table`.
    /// Elements beyond `n_rot` keep their value.
    pub fn apply(&self, isa: Isa, x: &mut [f32], width: usize, head_dim: usize, table: &Table) {
        let rotate = match self.pairing {
            Pairing::Adjacent => elements::rotate_adjacent,
            Pairing::Halves => elements::rotate_halves,
        };
        let tokens = CHUNK.div_ceil(width.max(1));
        pool::chunks_mut(x, tokens * width, |i, x| {
            for (t, row) in x.chunks_exact_mut(width).enumerate() {
                let n = table.per_position;
                let both = &table.both[(i * tokens + t) * 2 * n..][..2 * n];
                for head in row.chunks_exact_mut(head_dim) {
                    rotate(isa, head, &both[..n], &both[n..]);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{Random, isas};

    #[test]
    fn blocks_turn_by_their_first_position_and_back() {
        for pairing in [Pairing::Adjacent, Pairing::Halves] {
            let (base, freq_scale, attn_factor) = (10000.0, 0.5, 1.0);
            let rope = Rope { n_rot: 8, pairing, base, freq_scale, attn_factor, freq_factors: Vec::new(), yarn: None };
            let x: Vec<f32> = (0..3 * 8).map(|i| i as f32 - 7.0).collect();
            let turned = |table: &Table| {
                let mut y = x.clone();
                rope.apply(Isa::detect(), &mut y, 8, 8, table);
                y
            };
            let positions = [3, 4, 11];
            let forward = Turn { head: 8, back: false, block: 4 };
            let y = turned(&forward.table(&rope, &positions));
            assert_eq!(y, turned(&rope.table(&[0, 4, 8])));
            let mut back = y.clone();
            let table = Turn { back: true, ..forward }.table(&rope, &positions);
            rope.apply(Isa::detect(), &mut back, 8, 8, &table);
            assert!(y != x && back.iter().zip(&x).all(|(back, x)| (back - x).abs() < 1e-4), "{back:?}");
        }
    }

    #[test]
    fn every_element_is_rotated_by_the_formula() {
        let mut random = Random(0x0707);
        for pairing in [Pairing::Adjacent, Pairing::Halves] {
            for (n_rot, head_dim) in [(2, 4), (10, 10), (32, 40), (64, 64), (96, 96), (128, 256)] {
                let rope = Rope {
                    n_rot,
                    pairing,
                    base: 10000.0,
                    freq_scale: 0.25,
                    attn_factor: 1.5,
                    freq_factors: vec![2.0, 3.0],
                    yarn: None,
                };
                let (heads, tokens) = (3, 200);
                let mut value = || match random.below(20) {
                    0 => -0.0,
                    1 => 1e-42,
                    _ => random.float(),
                };
                let x: Vec<f32> = (0..tokens * heads * head_dim).map(|_| value()).collect();
                let mut expected = x.clone();
                for (i, head) in expected.chunks_exact_mut(head_dim).enumerate() {
                    let mut theta = (7 + i / heads) as f32;
                    for j in 0..n_rot / 2 {
                        let factor = [2.0, 3.0].get(j).copied().unwrap_or(1.0);
                        let (s, c) = sincosf(0.25 * (theta / factor));
                        let (s, c) = (s * 1.5, c * 1.5);
                        let (a, b) = match pairing {
                            Pairing::Adjacent => (2 * j, 2 * j + 1),
                            Pairing::Halves => (j, j + n_rot / 2),
                        };
                        let (u, v) = (head[a], head[b]);
                        (head[a], head[b]) = (u * c - v * s, u * s + v * c);
                        theta *= powf(10000.0, -2.0 / n_rot as f32);
                    }
                }
                for isa in isas() {
                    let pool = pool::Pool::new(2).expect("threads");
                    let mut got = x.clone();
                    pool.install(|| {
                        let positions: Vec<usize> = (7..7 + tokens).collect();
                        let table = rope.table(&positions);
                        rope.apply(isa, &mut got, heads * head_dim, head_dim, &table);
                    });
                    for (i, (a, b)) in got.iter().zip(&expected).enumerate() {
                        assert_eq!(a.to_bits(), b.to_bits(), "{isa} {pairing:?} {n_rot}: {i}");
                    }
                }
            }
        }
    }
}
