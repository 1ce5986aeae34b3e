//! The gated delta rule: the recurrence of Gated DeltaNet and Kimi Delta Attention.
//!
//! A head's state is a square matrix `S`. Every position, with its key k, value v, query q, decay g and strength b,
//! makes of it `S = S * e^g`, `d = (v - S^T k) * b`, `S = S + k d^T`, and reads `S^T q / sqrt(size)` (ggml
//! `ggml_compute_forward_gated_delta_net`): products in `f32`, each rounded; the two matrix products in `f64` in order
//! and rounded at last, as ggml's dot products are. The decay is one number, or one for each row of the state.
//!
//! Lanes are columns of the state, so that every column keeps its own chain; heads are tasks.

use super::activation::{sigmoid, softplus};
use crate::kernels::Floats;
use crate::math::expf;
use crate::pool;

/// The rule for one layer.
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    /// Heads with a state.
    pub heads: usize,
    /// Heads of keys and queries, which divide them.
    pub key_heads: usize,
    /// True if heads that share a key follow each other; otherwise heads take the keys in turn.
    pub neighbours: bool,
    /// Elements of a key, a query and a value.
    pub size: usize,
}

/// The decays of a layer, `[tokens][heads]` or `[tokens][heads][elements]`: softplus of the value times the head's
/// factor; with a bound the sigmoid of their product times the bound.
#[derive(Clone, Debug)]
pub struct Decay {
    /// A factor for each head.
    pub factors: Vec<f32>,
    /// Numbers of a head.
    pub of_head: usize,
    /// Bound of the decays' logarithms.
    pub bound: Option<f32>,
}

impl Decay {
    /// The decays of the values in `x`, where they are.
    pub fn apply(&self, x: &mut [f32]) {
        for row in x.chunks_exact_mut(self.of_head * self.factors.len()) {
            for (head, factor) in row.chunks_exact_mut(self.of_head).zip(&self.factors) {
                head.iter_mut().for_each(|g| {
                    *g = match self.bound {
                        Some(bound) => sigmoid(*g * factor) * bound,
                        None => softplus(*g) * factor,
                    }
                });
            }
        }
    }
}

/// The next positions of one sequence.
#[derive(Clone, Copy)]
pub struct Steps<'a> {
    /// `[tokens][key heads][size]`
    pub q: &'a [f32],
    /// `[tokens][key heads][size]`
    pub k: &'a [f32],
    /// `[tokens][heads][size]`
    pub v: &'a [f32],
    /// Logarithms of the decay, `[tokens][heads]` or `[tokens][heads][size]`.
    pub g: &'a [f32],
    /// Strengths, `[tokens][heads]`.
    pub b: &'a [f32],
}

/// One head.
struct Head<'a> {
    /// `[size][size]`: rows are multiplied with keys and queries.
    state: &'a mut [f32],
    /// `[tokens][size]`
    y: &'a mut [f32],
}

impl Delta {
    /// The outputs, `[tokens][heads][size]`. `states`, a matrix for each head, go on to the last of the positions.
    pub fn run(&self, steps: &Steps<'_>, states: &mut [f32]) -> Floats {
        let (n, width) = (self.size, self.heads * self.size);
        let tokens = steps.v.len() / width;
        let mut y = vec![0f32; steps.v.len()];
        let states = states.chunks_exact_mut(n * n);
        let mut heads: Vec<Head<'_>> =
            states.zip(y.chunks_exact_mut(tokens * n)).map(|(state, y)| Head { state, y }).collect();
        pool::chunks_mut(&mut heads, 1, |no, head| {
            head.iter_mut().for_each(|head| self.head(no, steps, head));
        });
        let mut out = Floats::scratch(y.len());
        for (no, head) in y.chunks_exact(tokens * n).enumerate() {
            for (row, y) in out.chunks_exact_mut(width).zip(head.chunks_exact(n)) {
                row[no * n..][..n].copy_from_slice(y);
            }
        }
        out
    }

    fn head(&self, no: usize, steps: &Steps<'_>, head: &mut Head<'_>) {
        let n = self.size;
        let key_head = match self.neighbours {
            true => no / (self.heads / self.key_heads),
            false => no % self.key_heads,
        };
        let scale = 1.0 / (n as f32).sqrt();
        let by_row = steps.g.len() > steps.b.len();
        let mut sums = vec![0f64; n];
        let mut delta = vec![0f32; n];
        for (t, y) in head.y.chunks_exact_mut(n).enumerate() {
            let at = t * self.heads + no;
            let of_key = |v: &'_ [f32], i: usize| v[(t * self.key_heads + key_head) * n + i];
            let decay = |i: usize| match by_row {
                true => expf(steps.g[at * n + i]),
                false => expf(steps.g[at]),
            };
            let whole = decay(0);
            sums.fill(0.0);
            for (i, row) in head.state.chunks_exact_mut(n).enumerate() {
                let factor = if by_row { decay(i) } else { whole };
                let k = of_key(steps.k, i);
                for (s, sum) in row.iter_mut().zip(&mut sums) {
                    *s *= factor;
                    *sum += f64::from(*s * k);
                }
            }
            let v = &steps.v[at * n..][..n];
            for ((d, v), sum) in delta.iter_mut().zip(v).zip(&sums) {
                *d = (v - *sum as f32) * steps.b[at];
            }
            sums.fill(0.0);
            for (i, row) in head.state.chunks_exact_mut(n).enumerate() {
                let (k, q) = (of_key(steps.k, i), of_key(steps.q, i));
                for ((s, d), sum) in row.iter_mut().zip(&delta).zip(&mut sums) {
                    *s += k * d;
                    *sum += f64::from(*s * q);
                }
            }
            y.iter_mut().zip(&sums).for_each(|(y, &sum)| *y = sum as f32 * scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::Random;

    /// One column after another, as the formula is written.
    fn expected(rule: &Delta, steps: &Steps<'_>, tokens: usize) -> Vec<u32> {
        let n = rule.size;
        let mut out = vec![0u32; tokens * rule.heads * n];
        for head in 0..rule.heads {
            let shared = rule.heads / rule.key_heads;
            let key_head = if rule.neighbours { head / shared } else { head % rule.key_heads };
            for j in 0..n {
                let mut column = vec![0f32; n];
                for t in 0..tokens {
                    let at = t * rule.heads + head;
                    let key = (t * rule.key_heads + key_head) * n;
                    let dot = |s: &[f32], x: &[f32]| {
                        let products = s.iter().zip(&x[key..]).map(|(s, x)| f64::from(s * x));
                        products.fold(0.0, |sum, p| sum + p) as f32
                    };
                    for (i, s) in column.iter_mut().enumerate() {
                        let g = match steps.g.len() > steps.b.len() {
                            true => steps.g[at * n + i],
                            false => steps.g[at],
                        };
                        *s *= expf(g);
                    }
                    let d = (steps.v[at * n + j] - dot(&column, steps.k)) * steps.b[at];
                    for (i, s) in column.iter_mut().enumerate() {
                        *s += steps.k[key + i] * d;
                    }
                    let read = dot(&column, steps.q) * (1.0 / (n as f32).sqrt());
                    out[at * n + j] = read.to_bits();
                }
            }
        }
        out
    }

    #[test]
    fn columns_have_their_own_chains_however_positions_are_cut() {
        let mut random = Random(0xde17a);
        for (neighbours, by_row) in [(true, false), (false, true)] {
            let rule = Delta { heads: 6, key_heads: 3, neighbours, size: 10 };
            let tokens = 9;
            let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.float()).collect() };
            let keys = tokens * rule.key_heads * rule.size;
            let values = tokens * rule.heads * rule.size;
            let (q, k, v) = (floats(keys), floats(keys), floats(values));
            let b = floats(tokens * rule.heads);
            let g = floats(if by_row { values } else { b.len() });
            let all = Steps { q: &q, k: &k, v: &v, g: &g, b: &b };
            let want = expected(&rule, &all, tokens);
            for (threads, cut) in [(1, tokens), (2, 4), (1, 1)] {
                let pool = pool::Pool::new(threads).expect("threads");
                let mut states = vec![0f32; rule.heads * rule.size * rule.size];
                let mut got = Vec::new();
                for from in (0..tokens).step_by(cut) {
                    let to = tokens.min(from + cut);
                    let part = |v: &'_ [f32]| {
                        let row = v.len() / tokens;
                        v[from * row..to * row].to_vec()
                    };
                    let [q, k, v, g, b] = [&q, &k, &v, &g, &b].map(|v| part(v));
                    let steps = Steps { q: &q, k: &k, v: &v, g: &g, b: &b };
                    let y = pool.install(|| rule.run(&steps, &mut states));
                    got.extend(y.iter().map(|v| v.to_bits()));
                }
                assert!(got == want, "{neighbours} {by_row}: parts of {cut}");
            }
        }
    }
}
