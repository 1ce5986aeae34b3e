//! Causal soft-max attention with shared key-value heads, forwards and backwards.
//!
//! Heads run in parallel, each in one thread; the gradients of a shared key-value head are added in the
//! order of its query heads. Probabilities are computed again on the way back, a block of queries at a
//! time, so that the memory grows with the tokens and not with their square.

use std::ops::Range;

use rayon::prelude::*;

use super::elements::{add, soft_cap};
use super::product::{Packed, Place, View, multiply_here};
use super::real::Real;
use crate::kernels::Isa;
use crate::program::Attend;

/// Queries at a time.
const BLOCK: usize = 64;

/// An attention. Queries, keys and values are `[tokens][heads * elements]`, and so are their gradients.
pub struct Attention<'a> {
    /// Scores, window, heads.
    pub attend: &'a Attend,
    /// Instruction set; changes no bit.
    pub isa: Isa,
}

/// Probabilities of a block of queries, `[rows][rows.end]`, and the slopes of capped scores.
type Probabilities<T> = (Vec<T>, Option<Vec<T>>);

impl Attention<'_> {
    /// The heads' outputs.
    pub fn forward<T: Real>(&self, qkv: [&[T]; 3]) -> Vec<T> {
        let size = self.attend.value_size;
        let heads: Vec<Vec<T>> = (0..self.attend.heads.queries)
            .into_par_iter()
            .map(|h| {
                let [q, k, v] = self.views(qkv, h);
                let (keys, values) = (Packed::new(k.transposed()), Packed::new(v));
                let mut out = vec![T::default(); q.height() * size];
                for rows in blocks(q.height()) {
                    let (p, _) = self.probabilities(q, &keys, rows.clone(), h);
                    let p = View::new(&p, rows.end);
                    multiply_here(self.isa, p, &values, size, &mut out[rows.start * size..], Place::whole(size));
                }
                out
            })
            .collect();
        joined(&heads, 1, size)
    }

    /// The gradients at queries, keys and values from that at the heads' outputs.
    pub fn backward<T: Real>(&self, qkv: [&[T]; 3], dy: &[T]) -> [Vec<T>; 3] {
        let of = self.attend.heads;
        let mut parts = [(); 3].map(|()| Vec::with_capacity(of.queries));
        let heads: Vec<[Vec<T>; 3]> =
            (0..of.queries).into_par_iter().map(|h| self.head_back(qkv, h, self.head_of(dy, h))).collect();
        for head in heads {
            parts.iter_mut().zip(head).for_each(|(part, head)| part.push(head));
        }
        let (shared, [q, k, v]) = (of.queries / of.keys, parts);
        [joined(&q, 1, of.size), joined(&k, shared, of.size), joined(&v, shared, self.attend.value_size)]
    }

    fn head_back<T: Real>(&self, qkv: [&[T]; 3], head: usize, dy: View<'_, T>) -> [Vec<T>; 3] {
        let (size, value_size) = (self.attend.heads.size, self.attend.value_size);
        let [q, k, v] = self.views(qkv, head);
        let (keys, values) = (Packed::new(k.transposed()), Packed::new(v.transposed()));
        let key_rows = Packed::new(k);
        let mut out = [size, size, value_size].map(|size| vec![T::default(); q.height() * size]);
        let [dq, dk, dv] = &mut out;
        for rows in blocks(q.height()) {
            let end = rows.end;
            let (p, slopes) = self.probabilities(q, &keys, rows.clone(), head);
            // dP = dO V^T, then dS = P * (dP - sum(P * dP)) per query.
            let mut ds = vec![T::default(); p.len()];
            let dy = dy.rows(rows.clone());
            multiply_here(self.isa, dy, &values, end, &mut ds, Place::whole(end));
            for (ds, p) in ds.chunks_exact_mut(end).zip(p.chunks_exact(end)) {
                let dot = ds.iter().zip(p).fold(0.0, |s, (d, p)| s + (*d * *p).wide());
                let (dot, scale) = (T::of(dot), T::single(self.attend.scale));
                for (d, &p) in ds.iter_mut().zip(p) {
                    *d = p * (*d - dot) * scale;
                }
            }
            if let Some(slopes) = slopes {
                ds.iter_mut().zip(slopes).for_each(|(d, slope)| *d *= slope);
            }
            let (p, ds) = (View::new(&p, end), View::new(&ds, end));
            let whole = Place::whole(size);
            multiply_here(self.isa, ds, &key_rows, size, &mut dq[rows.start * size..], whole);
            let queries = Packed::new(q.rows(rows));
            multiply_here(self.isa, ds.transposed(), &queries, size, dk, Place { add: true, ..whole });
            let add = Place { add: true, ..Place::whole(value_size) };
            multiply_here(self.isa, p.transposed(), &Packed::new(dy), value_size, dv, add);
        }
        out
    }

    fn probabilities<T: Real>(
        &self,
        q: View<'_, T>,
        keys: &Packed<T>,
        rows: Range<usize>,
        head: usize,
    ) -> Probabilities<T> {
        let end = rows.end;
        let mut p = vec![T::default(); rows.len() * end];
        multiply_here(self.isa, q.rows(rows.clone()), keys, end, &mut p, Place::whole(end));
        let rules = self.attend.rules.as_ref();
        let cap = rules.and_then(|rules| rules.cap);
        let slopes = cap.map(|[factor, cap]| {
            let inner = T::of(f64::from(factor) * f64::from(cap));
            let slope = |s: &mut T| {
                let (bounded, slope) = soft_cap(*s * inner, cap);
                *s = bounded;
                slope * inner
            };
            p.iter_mut().map(slope).collect()
        });
        let bias = rules.and_then(|rules| rules.slopes.get(head)).map(|&slope| T::single(slope));
        let sink = rules.and_then(|rules| rules.sinks.get(head)).map(|&sink| T::single(sink));
        for (i, row) in rows.zip(p.chunks_exact_mut(end)) {
            let first = self.attend.window.map_or(0, |window| window.first(i));
            let (seen, future) = row.split_at_mut(i + 1);
            let (past, seen) = seen.split_at_mut(first);
            past.fill(T::default());
            future.fill(T::default());
            let mut scale = T::single(self.attend.scale);
            if bias.is_some() || sink.is_some() {
                for (s, cell) in seen.iter_mut().zip(first..) {
                    let away = T::of((i - cell) as f64);
                    *s = *s * scale - bias.unwrap_or_default() * away;
                }
                scale = T::of(1.0);
            }
            soft_max(seen, scale, sink);
        }
        (p, slopes)
    }

    fn views<'x, T: Real>(&self, [q, k, v]: [&'x [T]; 3], head: usize) -> [View<'x, T>; 3] {
        let of = self.attend.heads;
        let key = head / (of.queries / of.keys);
        let view = |x: &'x [T], heads: usize, h: usize, size: usize| {
            View::new(x, heads * size).columns(h * size..(h + 1) * size)
        };
        let values = view(v, of.keys, key, self.attend.value_size);
        [view(q, of.queries, head, of.size), view(k, of.keys, key, of.size), values]
    }

    fn head_of<'x, T: Real>(&self, x: &'x [T], head: usize) -> View<'x, T> {
        let size = self.attend.value_size;
        View::new(x, self.attend.heads.queries * size).columns(head * size..(head + 1) * size)
    }
}

/// `[tokens][heads]` from the heads' own rows of `size`, every `shared` of them added up.
fn joined<T: Real>(heads: &[Vec<T>], shared: usize, size: usize) -> Vec<T> {
    let width = heads.len() / shared * size;
    let mut out = vec![T::default(); heads.iter().map(Vec::len).sum::<usize>() / shared];
    out.par_chunks_mut(width).enumerate().for_each(|(t, row)| {
        for (group, out) in heads.chunks_exact(shared).zip(row.chunks_exact_mut(size)) {
            for head in group {
                add(out, &head[t * size..][..size]);
            }
        }
    });
    out
}

fn blocks(tokens: usize) -> impl Iterator<Item = Range<usize>> {
    (0..tokens).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(tokens))
}

/// e^(scale * (x - max)) over its sum, which is taken in `f64` in order. A sink is one more score, which has no place.
fn soft_max<T: Real>(x: &mut [T], scale: T, sink: Option<T>) {
    let max = x.iter().copied().fold(sink.unwrap_or(x[0]), |m, v| if v > m { v } else { m });
    x.iter_mut().for_each(|v| *v = (scale * (*v - max)).exp());
    let of_sink = sink.map_or(0.0, |sink| (sink - max).exp().wide());
    let sum = x.iter().fold(of_sink, |s, v| s + v.wide());
    let inverse = T::of(1.0 / sum);
    x.iter_mut().for_each(|v| *v *= inverse);
}
