//! Attention over a whole sequence in both directions.
//!
//! Nothing is kept for later, so that keys, values and probabilities stay in single precision: `S_j = sum_d q_d k_jd`,
//! products rounded to `f32`, sum in `f64` in index order; `w_j = S_j * scale + 0`; the soft-max of all of them
//! ([`crate::ops::soft_max`], whose last cells, where they are no group of four, take libm's exponential);
//! `o_d = sum_j p_j v_jd` like the scores.

use std::ops::Range;

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

/// Output of every row of `q`, `[tokens][query heads][head size]`, which attends to the rows of its own sequence;
/// `sequences` are their rows.
pub fn whole(sequences: &[Range<usize>], [q, k, v]: [&[f32]; 3], heads: Heads, scale: f32) -> Floats {
    let (width, size) = (heads.queries * heads.size, heads.size);
    let (row, shared) = (heads.keys * size, heads.queries / heads.keys);
    let mut out = Floats::scratch(q.len());
    pool::chunks_mut(&mut out, width, |token, out| {
        let mut all = sequences.iter();
        let seen = all.find(|rows| rows.contains(&token)).cloned();
        let seen = seen.unwrap_or(token..token + 1);
        let mut p = vec![0f32; seen.len()];
        for (head, out) in out.chunks_exact_mut(size).enumerate() {
            let q = &q[token * width + head * size..][..size];
            let of_token = |x: &'_ [f32], j: usize| {
                let at = (seen.start + j) * row + head / shared * size;
                at..at + x.len().min(size)
            };
            for (j, p) in p.iter_mut().enumerate() {
                let k = &k[of_token(k, j)];
                let terms = q.iter().zip(k);
                let score = terms.fold(0f64, |s, (q, k)| s + f64::from(q * k)) as f32;
                *p = score * scale + 0.0;
            }
            soft_max(&mut p);
            for (d, out) in out.iter_mut().enumerate() {
                let terms = p.iter().enumerate();
                let sum = terms.fold(0f64, |s, (j, p)| s + f64::from(p * v[of_token(v, j).start + d]));
                *out = sum as f32;
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_sees_its_whole_sequence_and_no_other() {
        let heads = Heads { queries: 2, keys: 1, size: 2 };
        // keys of 0 weigh all tokens of a sequence alike
        let q = [1.0f32; 5 * 4];
        let k = [0.0f32; 5 * 2];
        let v = [1.0f32, 0.0, 3.0, 0.5, 8.0, 2.0, 6.0, 4.0, 4.0, 0.0];
        let y = whole(&[0..2, 2..5], [&q, &k, &v], heads, 0.5);
        assert_eq!(y[..8], [2.0, 0.25, 2.0, 0.25, 2.0, 0.25, 2.0, 0.25]);
        let third = 1.0f32 * (1.0 / 3.0f64) as f32;
        let sum = |d: usize| [4, 6, 8].iter().fold(0f64, |s, j| s + f64::from(v[j + d] * third)) as f32;
        assert_eq!(y[8..12], [sum(0), sum(1), sum(0), sum(1)]);
        let mut far = k;
        far[3] = -50.0;
        let y = whole(&[0..2, 2..5], [&q, &far, &v], heads, 4.0);
        assert_eq!(y[..2], [1.0, 0.0]);
    }
}
