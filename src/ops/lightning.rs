//! Lightning attention: linear attention whose past decays, in blocks of positions.
//!
//! Within a block of [`BLOCK`] positions a query q sees every key k before it, at a distance of n positions, as
//! `(q k) e^(-s n)`, where s is the head's slope; what comes from earlier blocks is the state `S`, which it reads as
//! `S (q e^(-s m))` as the m-th of its block, counted from 1. A full block makes of the state
//! `S e^(-s BLOCK) + sum of v (k e^(-s r))^T`, with r positions behind a key to the block's end.
//!
//! The reference does so by micro-batches (llama.cpp's `minimax-01.cpp`), so that its bits depend on their size. These
//! are its bits for micro-batches of [`BLOCK`] positions, its default, whatever the pieces a text comes in: the state
//! holds the keys and values of a block that is not full. Products are `f32`, sums of products `f64` in order and
//! rounded at last, as ggml's dot products are.

use crate::kernels::Floats;
use crate::math::{expf, log2f, powf};
use crate::pool;

/// Positions of a block.
pub const BLOCK: usize = 512;

/// Lightning attention of one layer.
#[derive(Clone, Debug)]
pub struct Lightning {
    /// Elements of a key, a query and a value.
    pub(crate) size: usize,
    /// Slopes of the heads, before the layer's factor.
    pub(crate) slopes: Vec<f32>,
    /// The layer's factor on the slopes.
    pub(crate) factor: f32,
}

/// One head.
struct Head<'a> {
    /// `[size][size]`: rows are multiplied with queries.
    state: &'a mut [f32],
    /// `[BLOCK][size]`, those of the positions of a block that is not full.
    keys: &'a mut [f32],
    values: &'a mut [f32],
    /// `[tokens][size]`
    y: &'a mut [f32],
}

impl Lightning {
    /// Lightning attention of block number `layer` of `layers`: the slopes of its heads, 2^(-8/heads) to 2^-8, fall
    /// towards the last block.
    pub fn new(heads: usize, size: usize, layer: usize, layers: usize) -> Lightning {
        let start = powf(2.0, -powf(2.0, -(log2f(heads as f32) - 3.0)));
        let factor = 1.0 - 1.0 * layer as f64 / (layers as f64 - 1.0) + 1e-5;
        Lightning {
            size,
            slopes: (0..heads).map(|head| start * powf(start, head as f32)).collect(),
            factor: factor as f32,
        }
    }

    /// Numbers of a sequence's state: positions of the block that is not full, and every head's matrix, keys and
    /// values.
    pub const fn state(heads: usize, size: usize) -> usize {
        heads.saturating_mul(size).saturating_mul(size.saturating_add(2 * BLOCK)).saturating_add(1)
    }

    /// The outputs, `[tokens][heads][size]`, of queries, keys and values of that shape. `state` goes on to the last of
    /// the positions.
    pub fn run(&self, [q, k, v]: [&[f32]; 3], state: &mut [f32]) -> Floats {
        let (n, heads) = (self.size, self.slopes.len());
        let (tokens, width) = (q.len() / (heads * n), heads * n);
        let Some((count, state)) = state.split_first_mut() else {
            return Floats::scratch(0);
        };
        let from = *count as usize;
        let (matrices, cells) = state.split_at_mut(width * n);
        let (keys, values) = cells.split_at_mut(width * BLOCK);
        let mut y = vec![0f32; q.len()];
        let mut all: Vec<Head<'_>> = matrices
            .chunks_exact_mut(n * n)
            .zip(keys.chunks_exact_mut(BLOCK * n))
            .zip(values.chunks_exact_mut(BLOCK * n))
            .zip(y.chunks_exact_mut((tokens * n).max(1)))
            .map(|(((state, keys), values), y)| Head { state, keys, values, y })
            .collect();
        pool::chunks_mut(&mut all, 1, |no, head| {
            let of = |x: &'_ [f32], t: usize| -> Vec<f32> { x[t * width + no * n..][..n].to_vec() };
            for head in head {
                for t in 0..tokens {
                    let cell = (from + t) % BLOCK;
                    head.keys[cell * n..][..n].copy_from_slice(&of(k, t));
                    head.values[cell * n..][..n].copy_from_slice(&of(v, t));
                    self.position(no, head, &of(q, t), cell, t);
                    if cell + 1 == BLOCK {
                        self.fold(no, head);
                    }
                }
            }
        });
        *count = ((from + tokens) % BLOCK) as f32;
        let mut out = Floats::scratch(y.len());
        for (no, head) in y.chunks_exact((tokens * n).max(1)).enumerate() {
            for (row, y) in out.chunks_exact_mut(width).zip(head.chunks_exact(n)) {
                row[no * n..][..n].copy_from_slice(y);
            }
        }
        out
    }

    /// Factor by which the contribution of a position has decayed after `distance` positions, for head `no`.
    fn decay(&self, no: usize, distance: usize) -> f32 {
        expf(-self.slopes[no] * distance as f32 * self.factor)
    }

    /// Output of position `cell` of the block, the `t`-th of the pass.
    fn position(&self, no: usize, head: &mut Head<'_>, q: &[f32], cell: usize, t: usize) {
        let n = self.size;
        let decay = self.decay(no, cell + 1);
        let faded: Vec<f32> = q.iter().map(|q| q * decay).collect();
        let mut sums = vec![0f64; n];
        let keys = head.keys.chunks_exact(n).zip(head.values.chunks_exact(n));
        for (i, (k, v)) in keys.take(cell + 1).enumerate() {
            let weight = dot(k, q) * self.decay(no, cell - i);
            let values = sums.iter_mut().zip(v);
            values.for_each(|(sum, v)| *sum += f64::from(v * weight));
        }
        let rows = head.state.chunks_exact(n).zip(&sums);
        for (y, (row, sum)) in head.y[t * n..][..n].iter_mut().zip(rows) {
            *y = dot(row, &faded) + *sum as f32;
        }
    }

    /// Puts a full block into the state.
    fn fold(&self, no: usize, head: &mut Head<'_>) {
        let n = self.size;
        let mut keys = head.keys.to_vec();
        for (i, k) in keys.chunks_exact_mut(n).enumerate() {
            let decay = self.decay(no, BLOCK - 1 - i);
            k.iter_mut().for_each(|k| *k *= decay);
        }
        let whole = expf(self.slopes[no] * self.factor * -(BLOCK as f32));
        let mut sums = vec![0f64; n];
        for (e, row) in head.state.chunks_exact_mut(n).enumerate() {
            sums.fill(0.0);
            for (k, v) in keys.chunks_exact(n).zip(head.values.chunks_exact(n)) {
                let products = sums.iter_mut().zip(k);
                products.for_each(|(sum, k)| *sum += f64::from(k * v[e]));
            }
            row.iter_mut().zip(&sums).for_each(|(s, &sum)| *s = *s * whole + sum as f32);
        }
    }
}

/// ggml's `ggml_vec_dot_f32` without vectors.
fn dot(x: &[f32], y: &[f32]) -> f32 {
    x.iter().zip(y).fold(0.0, |sum, (x, y)| sum + f64::from(x * y)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::Random;

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn pieces_of_a_text_are_its_whole() {
        let (heads, size, tokens) = (2, 8, BLOCK + 70);
        let mut random = Random(0x51de);
        let all = [(); 3].map(|_| -> Vec<f32> { (0..tokens * heads * size).map(|_| random.float()).collect() });
        let attention = Lightning::new(heads, size, 0, 3);
        let run = |steps: &[usize]| {
            let mut state = vec![0f32; Lightning::state(heads, size)];
            let mut y = Vec::new();
            let mut from = 0;
            for step in steps {
                let rows = from * heads * size..(from + step) * heads * size;
                y.extend_from_slice(&attention.run(all.each_ref().map(|x| &x[rows.clone()]), &mut state));
                from += step;
            }
            (bits(&y), state)
        };
        let whole = run(&[tokens]);
        assert_eq!(whole.1[0], 70.0);
        for steps in [&[1, 7, 500, 74][..], &[BLOCK, 70], &[BLOCK - 1, 1, 1, 69]] {
            let got = run(steps);
            assert_eq!(got.0, whole.0, "{steps:?}");
            assert_eq!(bits(&got.1)[..1 + heads * size * size], bits(&whole.1)[..1 + heads * size * size]);
        }
    }

    #[test]
    fn blocks_are_a_way_to_compute_one_recurrence() {
        let (size, tokens) = (4, BLOCK + 20);
        let mut random = Random(0xfade);
        let all = [(); 3].map(|_| -> Vec<f32> { (0..tokens * size).map(|_| random.float()).collect() });
        let attention = Lightning::new(1, size, 1, 3);
        let mut state = vec![0f32; Lightning::state(1, size)];
        let y = attention.run(all.each_ref().map(Vec::as_slice), &mut state);
        let fade = f64::from(attention.decay(0, 1));
        let largest = y.iter().fold(0f32, |m, y| m.max(y.abs()));
        let mut s = vec![0f64; size * size];
        for t in 0..tokens {
            let of = |i: usize| all[i][t * size..][..size].iter().map(|&x| f64::from(x));
            for (row, v) in s.chunks_exact_mut(size).zip(of(2)) {
                row.iter_mut().zip(of(1)).for_each(|(s, k)| *s = *s * fade + v * k);
            }
            for (row, y) in s.chunks_exact(size).zip(&y[t * size..]) {
                let expected: f64 = row.iter().zip(of(0)).map(|(s, q)| s * q).sum();
                let error = (expected - f64::from(*y)).abs();
                let bound = 1e-5 * f64::from(largest);
                assert!(error < bound, "{t}: {expected} and {y}");
            }
        }
    }
}
