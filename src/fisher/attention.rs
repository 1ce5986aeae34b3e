//! Causal soft-max attention with shared key-value heads, forwards and backwards.
//!
//! Heads run in parallel, each in one thread; the gradients of a shared key-value head are added in the
//! order of its query heads. Probabilities are computed again on the way back, a block of queries at a
//! time, so that the memory grows with the tokens and not with their square.

use std::ops::Range;

use rayon::prelude::*;

use super::product::{Packed, Place, View, multiply_here};
use super::real::Real;
use crate::kernels::Isa;

/// Queries at a time.
const BLOCK: usize = 64;

/// The shape of an attention.
#[derive(Clone, Copy)]
pub struct Attention {
    /// Query heads.
    pub n_head: usize,
    /// Key-value heads, a divisor of `n_head`.
    pub n_head_kv: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f64,
    /// Cells a query sees, itself included; `None` for all before it.
    pub window: Option<usize>,
    /// Instruction set; changes no bit.
    pub isa: Isa,
}

/// Queries, keys and values, `[tokens][heads * head_dim]`, or their gradients.
pub struct Qkv<T> {
    /// `n_head` heads.
    pub q: Vec<T>,
    /// `n_head_kv` heads.
    pub k: Vec<T>,
    /// `n_head_kv` heads.
    pub v: Vec<T>,
}

impl Attention {
    /// The heads' outputs, `[tokens][n_head * head_dim]`.
    pub fn forward<T: Real>(&self, x: &Qkv<T>) -> Vec<T> {
        let heads: Vec<Vec<T>> = (0..self.n_head)
            .into_par_iter()
            .map(|h| {
                let (q, k, v) = self.views(x, h);
                let (keys, values) = (Packed::new(k.transposed()), Packed::new(v));
                let mut out = vec![T::default(); q.height() * self.head_dim];
                for rows in blocks(q.height()) {
                    let p = self.probabilities(q, &keys, rows.clone());
                    let p = View::new(&p, rows.end);
                    let out = &mut out[rows.start * self.head_dim..];
                    let place = Place::whole(self.head_dim);
                    multiply_here(self.isa, p, &values, self.head_dim, out, place);
                }
                out
            })
            .collect();
        self.joined(&heads, 1)
    }

    /// The gradients at queries, keys and values from that at the heads' outputs.
    pub fn backward<T: Real>(&self, x: &Qkv<T>, dy: &[T]) -> Qkv<T> {
        let heads: Vec<[Vec<T>; 3]> =
            (0..self.n_head).into_par_iter().map(|h| self.head_back(x, h, self.head_of(dy, h))).collect();
        let of = |part: usize| -> Vec<Vec<T>> { heads.iter().map(|h| h[part].clone()).collect() };
        let shared = self.n_head / self.n_head_kv;
        Qkv { q: self.joined(&of(0), 1), k: self.joined(&of(1), shared), v: self.joined(&of(2), shared) }
    }

    fn head_back<T: Real>(&self, x: &Qkv<T>, head: usize, dy: View<'_, T>) -> [Vec<T>; 3] {
        let hd = self.head_dim;
        let (q, k, v) = self.views(x, head);
        let (keys, values) = (Packed::new(k.transposed()), Packed::new(v.transposed()));
        let key_rows = Packed::new(k);
        let mut out = [(); 3].map(|()| vec![T::default(); q.height() * hd]);
        let [dq, dk, dv] = &mut out;
        for rows in blocks(q.height()) {
            let end = rows.end;
            let p = self.probabilities(q, &keys, rows.clone());
            // dP = dO V^T, then dS = P * (dP - sum(P * dP)) per query.
            let mut ds = vec![T::default(); p.len()];
            let dy = dy.rows(rows.clone());
            multiply_here(self.isa, dy, &values, end, &mut ds, Place::whole(end));
            for (ds, p) in ds.chunks_exact_mut(end).zip(p.chunks_exact(end)) {
                let dot = ds.iter().zip(p).fold(0.0, |s, (d, p)| s + (*d * *p).wide());
                let (dot, scale) = (T::of(dot), T::of(self.scale));
                for (d, &p) in ds.iter_mut().zip(p) {
                    *d = p * (*d - dot) * scale;
                }
            }
            let (p, ds) = (View::new(&p, end), View::new(&ds, end));
            let whole = Place::whole(hd);
            multiply_here(self.isa, ds, &key_rows, hd, &mut dq[rows.start * hd..], whole);
            let add = Place { add: true, ..whole };
            let queries = Packed::new(q.rows(rows));
            multiply_here(self.isa, ds.transposed(), &queries, hd, dk, add);
            multiply_here(self.isa, p.transposed(), &Packed::new(dy), hd, dv, add);
        }
        out
    }

    /// Rows `rows` of the probabilities, `[rows][rows.end]`.
    fn probabilities<T: Real>(&self, q: View<'_, T>, keys: &Packed<T>, rows: Range<usize>) -> Vec<T> {
        let end = rows.end;
        let mut p = vec![T::default(); rows.len() * end];
        let place = Place::whole(end);
        multiply_here(self.isa, q.rows(rows.clone()), keys, end, &mut p, place);
        for (i, row) in rows.zip(p.chunks_exact_mut(end)) {
            let first = self.window.map_or(0, |w| (i + 1).saturating_sub(w));
            let (seen, future) = row.split_at_mut(i + 1);
            let (past, seen) = seen.split_at_mut(first);
            past.fill(T::default());
            future.fill(T::default());
            soft_max(seen, T::of(self.scale));
        }
        p
    }

    fn views<'a, T: Real>(&self, x: &'a Qkv<T>, head: usize) -> (View<'a, T>, View<'a, T>, View<'a, T>) {
        let kv = head / (self.n_head / self.n_head_kv);
        let of = |x: &'a [T], heads: usize, h: usize| {
            let columns = h * self.head_dim..(h + 1) * self.head_dim;
            View::new(x, heads * self.head_dim).columns(columns)
        };
        let (k, v) = (of(&x.k, self.n_head_kv, kv), of(&x.v, self.n_head_kv, kv));
        (of(&x.q, self.n_head, head), k, v)
    }

    fn head_of<'a, T: Real>(&self, x: &'a [T], head: usize) -> View<'a, T> {
        let columns = head * self.head_dim..(head + 1) * self.head_dim;
        View::new(x, self.n_head * self.head_dim).columns(columns)
    }

    /// `[tokens][heads]` from the heads' own rows, every `shared` of them added up.
    fn joined<T: Real>(&self, heads: &[Vec<T>], shared: usize) -> Vec<T> {
        let hd = self.head_dim;
        let width = heads.len() / shared * hd;
        let mut out = vec![T::default(); heads.iter().map(Vec::len).sum::<usize>() / shared];
        out.par_chunks_mut(width).enumerate().for_each(|(t, row)| {
            for (group, out) in heads.chunks_exact(shared).zip(row.chunks_exact_mut(hd)) {
                for head in group {
                    super::ops::add(out, &head[t * hd..][..hd]);
                }
            }
        });
        out
    }
}

fn blocks(tokens: usize) -> impl Iterator<Item = Range<usize>> {
    (0..tokens).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(tokens))
}

/// e^(scale * (x - max)) over its sum, which is taken in `f64` in order.
fn soft_max<T: Real>(x: &mut [T], scale: T) {
    let max = x.iter().copied().fold(x[0], |m, v| if v > m { v } else { m });
    x.iter_mut().for_each(|v| *v = (scale * (*v - max)).exp());
    let sum = x.iter().fold(0.0, |s, v| s + v.wide());
    let inverse = T::of(1.0 / sum);
    x.iter_mut().for_each(|v| *v *= inverse);
}
