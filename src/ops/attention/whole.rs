//! Attention over a whole sequence in both directions.
//!
//! Nothing is kept for later, so that keys, values and probabilities stay in single precision: `S_j = sum_d q_d k_jd`,
//! products rounded to `f32`, sum in `f64` in index order; `w_j = (S_j + b_j) * scale + m_j`, where b_j is 0 or a bias
//! by distance, m_j is 0, ALiBi's slope times the negative distance, or minus infinity outside of a window; the
//! soft-max of all of them ([`crate::ops::soft_max`], whose last cells, where they are no group of four, take libm's
//! exponential); `o_d = sum_j p_j v_jd` like the scores.

use std::ops::Range;

use super::relative::Relative;
use crate::kernels::Floats;
use crate::ops::soft_max::soft_max;
use crate::pool;

/// The heads of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Query heads; a multiple of the others.
    pub queries: usize,
    /// Key and value heads.
    pub keys: usize,
    /// Elements of a head.
    pub size: usize,
}

/// Attention in both directions.
#[derive(Clone, Copy, Debug)]
pub struct BothWays<'a> {
    /// The heads.
    pub heads: Heads,
    /// Factor on the scores.
    pub scale: f32,
    /// The greatest distance at which tokens see one another; `None` where they all do.
    pub reach: Option<usize>,
    /// ALiBi: per query head what a step of distance lowers the score by; empty without it.
    pub slopes: &'a [f32],
    /// Biases by distance, added to the scores before their factor, where there are any.
    pub relative: Option<&'a Relative>,
}

impl BothWays<'_> {
    /// Output of every row of `q`, `[tokens][query heads][head size]`, which attends to the rows of its own sequence;
    /// `sequences` are their rows.
    pub fn run(&self, sequences: &[Range<usize>], [q, k, v]: [&[f32]; 3]) -> Floats {
        let Heads { queries, keys, size } = self.heads;
        let mut out = Floats::scratch(q.len());
        let columns: Vec<Floats> = sequences.iter().map(|rows| by_element(k, rows, keys * size)).collect();
        let of = |rows: &Range<usize>| self.relative.map_or(Vec::new(), |relative| relative.by_distance(rows.len()));
        let biases: Vec<Vec<&[f32]>> = sequences.iter().map(of).collect();
        pool::chunks_mut(&mut out, queries * size, |token, out| {
            let all = sequences.iter().zip(&columns).zip(&biases);
            let own = all.into_iter().find(|((rows, _), _)| rows.contains(&token));
            let Some(((rows, columns), biases)) = own else {
                return out.fill(0.0);
            };
            let q = &q[token * queries * size..][..queries * size];
            let v = &v[rows.start * keys * size..rows.end * keys * size];
            self.token(token - rows.start, rows.len(), [q, columns, v], biases, out);
        });
        out
    }

    /// The outputs of the token at `position` of a sequence of `cells` tokens: `k` is `[key heads][head size][cells]`,
    /// `v` is `[cells][key heads][head size]`; `biases` are those by distance, none without any.
    pub(super) fn token(
        &self,
        position: usize,
        cells: usize,
        [q, k, v]: [&[f32]; 3],
        biases: &[&[f32]],
        out: &mut [f32],
    ) {
        let Heads { queries, keys, size } = self.heads;
        let seen = match self.reach {
            Some(reach) => position.saturating_sub(reach)..cells.min(position + reach + 1),
            None => 0..cells,
        };
        let (mut sums, mut p) = (vec![0f64; cells.max(size)], vec![0f32; cells]);
        let heads = q.chunks_exact(size).zip(out.chunks_exact_mut(size));
        for (head, (q, out)) in heads.enumerate() {
            let key_head = head / (queries / keys);
            let scores = &mut sums[seen.clone()];
            scores.fill(0.0);
            for (d, &q) in q.iter().enumerate() {
                let k = &k[(key_head * size + d) * cells..][seen.clone()];
                scores.iter_mut().zip(k).for_each(|(sum, k)| *sum += f64::from(q * k));
            }
            p.fill(f32::NEG_INFINITY);
            let slope = self.slopes.get(head).copied().unwrap_or(0.0);
            for ((p, score), cell) in p[seen.clone()].iter_mut().zip(scores).zip(seen.clone()) {
                let distance = -(position.abs_diff(cell) as i32);
                let mut score = *score as f32;
                if let Some(heads) = biases.get(cells - 1 + cell - position) {
                    score += heads[head];
                }
                *p = score * self.scale + slope * distance as f32;
            }
            soft_max(&mut p);
            let outputs = &mut sums[..size];
            outputs.fill(0.0);
            for (&p, cell) in p[seen.clone()].iter().zip(seen.clone()) {
                let v = &v[(cell * keys + key_head) * size..][..size];
                outputs.iter_mut().zip(v).for_each(|(sum, v)| *sum += f64::from(p * v));
            }
            out.iter_mut().zip(outputs).for_each(|(out, sum)| *out = *sum as f32);
        }
    }
}

/// Rows of `k`, of `width` elements each, as `[width][rows]`.
fn by_element(k: &[f32], rows: &Range<usize>, width: usize) -> Floats {
    let k = &k[rows.start * width..rows.end * width];
    let mut columns = Floats::scratch(k.len());
    pool::chunks_mut(&mut columns, rows.len().max(1), |d, column| {
        column.iter_mut().zip(k[d..].iter().step_by(width)).for_each(|(to, from)| *to = *from);
    });
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { queries: 2, keys: 1, size: 2 };
    const PLAIN: BothWays<'_> = BothWays { heads: HEADS, scale: 0.5, reach: None, slopes: &[], relative: None };

    #[test]
    fn every_token_sees_its_whole_sequence_and_no_other() {
        // keys of 0 weigh all tokens of a sequence alike
        let q = [1.0f32; 5 * 4];
        let k = [0.0f32; 5 * 2];
        let v = [1.0f32, 0.0, 3.0, 0.5, 8.0, 2.0, 6.0, 4.0, 4.0, 0.0];
        let y = PLAIN.run(&[0..2, 2..5], [&q, &k, &v]);
        assert_eq!(y[..8], [2.0, 0.25, 2.0, 0.25, 2.0, 0.25, 2.0, 0.25]);
        let third = 1.0f32 * (1.0 / 3.0f64) as f32;
        let sum = |d: usize| [4, 6, 8].iter().fold(0f64, |s, j| s + f64::from(v[j + d] * third)) as f32;
        assert_eq!(y[8..12], [sum(0), sum(1), sum(0), sum(1)]);
        let mut far = k;
        far[3] = -50.0;
        let y = BothWays { scale: 4.0, ..PLAIN }.run(&[0..2, 2..5], [&q, &far, &v]);
        assert_eq!(y[..2], [1.0, 0.0]);
    }

    #[test]
    fn windows_reach_as_far_back_as_ahead_and_distance_lowers_scores() {
        let (q, k) = ([1.0f32; 4 * 4], [0.0f32; 4 * 2]);
        let v: Vec<f32> = (0..8).map(|i| (i / 2) as f32).collect();
        let near = BothWays { reach: Some(1), ..PLAIN };
        let y = near.run(std::slice::from_ref(&(0..4)), [&q, &k, &v]);
        let first: Vec<f32> = y.chunks_exact(4).map(|token| token[0]).collect();
        assert_eq!(first, [0.5, 1.0, 2.0, 2.5]);
        let biases = [0.0, 0.0, 0.0, -1e9, 0.0, 0.0, 0.0, -1e9];
        let relative = Relative { heads: 2, biases: biases.to_vec() };
        let biased = BothWays { relative: Some(&relative), ..PLAIN };
        let y = biased.run(std::slice::from_ref(&(0..4)), [&q, &k, &v]);
        // the second head sees its own position alone
        assert_eq!(y[..4], [1.5, 1.5, 0.0, 0.0]);
        assert_eq!(y[12..], [1.5, 1.5, 3.0, 3.0]);
        // the first head has no slope, the second a steep one: every token sees itself alone
        let steep = BothWays { slopes: &[0.0, 1e9], ..PLAIN };
        let y = steep.run(std::slice::from_ref(&(0..4)), [&q, &k, &v]);
        assert_eq!(y[..4], [1.5, 1.5, 0.0, 0.0]);
        assert_eq!(y[12..], [1.5, 1.5, 3.0, 3.0]);
    }
}
