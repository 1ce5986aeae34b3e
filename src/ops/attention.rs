//! Causal attention over a half-float cache, with or without a sliding window.
//!
//! Per query and head, in the reference's order (flash attention off):
//! scores `S_j = f32(sum_d q_d k_jd)`, products exact, sum in `f64` in index order, `q` rounded to half;
//! `w_j = S_j * scale + 0`; `e_j = pexp(w_j - max w)`; total in `f64` over groups of four cells, each
//! group summed in `f32` as `(e0 + e1) + (e2 + e3)`, groups counted from cell 0; `p_j = half(e_j / total)`;
//! `o_d = f32(sum_j p_j v_jd)`, again exact products summed in `f64` in order of the cells.
//! Cells outside the window count as probability +0, which changes no sum.

use rayon::prelude::*;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use crate::kernels::{Isa, halves};
use crate::math::pexp;
use crate::model::kv::{LayerCache, TILE};

/// What one call attends with.
pub struct Attention<'a> {
    /// The layer's cache; the rows of this call are already in it.
    pub cache: &'a LayerCache,
    /// Query heads; a multiple of the cache's heads.
    pub n_head: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Cells a query sees, itself included; `None` for all before it.
    pub window: Option<usize>,
    /// Position of the first query.
    pub first: usize,
    /// Instruction set.
    pub isa: Isa,
}

/// Queries handled together, so that a widened cache line serves several.
const GROUP: usize = 8;

impl Attention<'_> {
    /// `q` is `[tokens][n_head * head_dim]`; the result has the same shape.
    pub fn run(&self, q: &[f32]) -> Vec<f32> {
        let hd = self.cache.head_dim;
        let width = self.n_head * hd;
        let tokens = q.len() / width;
        let shared = self.n_head / self.cache.heads.len();
        // One task: one KV head and a few tokens, all query heads that share the KV head.
        let tokens_per_task = (GROUP / shared).clamp(1, tokens);
        let tasks: Vec<(usize, usize)> = (0..self.cache.heads.len())
            .flat_map(|h| (0..tokens).step_by(tokens_per_task).map(move |t| (h, t)))
            .collect();
        let parts: Vec<Vec<f32>> = tasks
            .par_iter()
            .map(|&(kv_head, t0)| {
                let t1 = (t0 + tokens_per_task).min(tokens);
                let queries: Vec<Query> = (t0..t1)
                    .flat_map(|t| (0..shared).map(move |s| (t, kv_head * shared + s)))
                    .map(|(t, head)| {
                        Query::new(
                            &q[t * width + head * hd..][..hd],
                            self.first + t,
                            self.window,
                        )
                    })
                    .collect();
                self.task(kv_head, &queries)
            })
            .collect();
        let mut out = vec![0f32; q.len()];
        for (&(kv_head, t0), part) in tasks.iter().zip(&parts) {
            for (i, row) in part.chunks_exact(shared * hd).enumerate() {
                out[(t0 + i) * width + kv_head * shared * hd..][..shared * hd].copy_from_slice(row);
            }
        }
        out
    }

    /// All queries of one KV head: `[queries][head_dim]`.
    fn task(&self, kv_head: usize, queries: &[Query]) -> Vec<f32> {
        let hd = self.cache.head_dim;
        let head = &self.cache.heads[kv_head];
        // The cells any query sees, from a tile's start (so that groups of four keep their place).
        let begin = queries.iter().map(|q| q.begin).min().unwrap_or(0) / TILE * TILE;
        let end = queries.iter().map(|q| q.end).max().unwrap_or(0);
        let cells = (end - begin).next_multiple_of(TILE);
        let mut out = vec![0f32; queries.len() * hd];
        let mut scores = vec![0f32; GROUP * cells];
        let mut probs = vec![0f64; GROUP * cells];
        for (queries, out) in queries.chunks(GROUP).zip(out.chunks_mut(GROUP * hd)) {
            let n = queries.len();
            let coef: Vec<f64> = queries
                .iter()
                .flat_map(|q| q.halves.iter().copied())
                .collect();
            for tile in 0..cells / TILE {
                let mut acc = [[0f64; TILE]; GROUP];
                halves::accumulate(
                    self.isa,
                    head.key_tile(begin / TILE + tile),
                    TILE,
                    hd,
                    &coef,
                    hd,
                    &mut acc[..n],
                );
                for (i, lanes) in acc[..n].iter().enumerate() {
                    let row = &mut scores[i * cells + tile * TILE..][..TILE];
                    row.iter_mut().zip(lanes).for_each(|(s, &a)| *s = a as f32);
                }
            }
            for (i, q) in queries.iter().enumerate() {
                let visible = q.begin - begin..q.end - begin;
                let row = i * cells..(i + 1) * cells;
                soft_max(
                    &mut scores[row.clone()],
                    visible,
                    self.scale,
                    &mut probs[row],
                );
            }
            for d in (0..hd).step_by(TILE) {
                let mut acc = [[0f64; TILE]; GROUP];
                let values = &head.values[begin * head.value_stride + d..];
                halves::accumulate(
                    self.isa,
                    values,
                    head.value_stride,
                    end - begin,
                    &probs,
                    cells,
                    &mut acc[..n],
                );
                let lanes = TILE.min(hd - d);
                for (i, a) in acc[..n].iter().enumerate() {
                    let row = &mut out[i * hd + d..][..lanes];
                    row.iter_mut().zip(a).for_each(|(o, &a)| *o = a as f32);
                }
            }
        }
        out
    }
}

/// One query head of one token.
struct Query {
    /// The head rounded to half floats.
    halves: Vec<f64>,
    /// Visible cells.
    begin: usize,
    end: usize,
}

impl Query {
    fn new(head: &[f32], position: usize, window: Option<usize>) -> Query {
        let begin = window.map_or(0, |w| (position + 1).saturating_sub(w));
        let halves = head
            .iter()
            .map(|&v| f64::from(f16_to_f32(f32_to_f16(v))))
            .collect();
        Query {
            halves,
            begin,
            end: position + 1,
        }
    }
}

/// Scores to half-float probabilities; `w` is overwritten. Both slices start at a cell that is a
/// multiple of four.
fn soft_max(w: &mut [f32], visible: std::ops::Range<usize>, scale: f32, p: &mut [f64]) {
    let seen = &mut w[visible.clone()];
    seen.iter_mut().for_each(|v| *v = *v * scale + 0.0);
    let max = seen
        .iter()
        .copied()
        .fold(f32::NEG_INFINITY, |m, v| if v > m { v } else { m });
    seen.iter_mut().for_each(|v| *v = pexp(*v - max));
    w[..visible.start].fill(0.0);
    w[visible.end..].fill(0.0);
    let total = w
        .chunks_exact(4)
        .fold(0f64, |t, e| t + f64::from((e[0] + e[1]) + (e[2] + e[3])));
    let inverse = (1.0 / total) as f32;
    p.iter_mut()
        .zip(&*w)
        .for_each(|(p, &e)| *p = f64::from(f16_to_f32(f32_to_f16(e * inverse))));
}
