//! Causal attention over keys and values that are not both half floats.
//!
//! A query head is encoded as keys of the type want it, and a score is the dot product of that type
//! ([`crate::kernels::mat_rows`]). What follows depends on the values. Where they are floats everything else is as with
//! half floats: probabilities are rounded to the type of the values, products to `f32`, and the sum is an `f64` in
//! order of the cells.
//!
//! Values of a quantized type are added up by the reference's flash attention, one cell after another: `s` is the score
//! with all that is done to it, `M` the greatest so far. A greater one multiplies the outputs and their total by `exp(M
//! - s)` before it counts as 1; any other counts as `w = exp(s - M)`. `o_d = o_d + v_d * w`, every step rounded to
//! `f32`; at last all are multiplied by `1 / total`.

use std::ops::Range;

use trine_formats::types::TypeId;

use super::rows::{Attention, HeadRows};
use crate::kernels::elements::hadamard;
use crate::kernels::{self, Floats, Isa};
use crate::kv::{EncodedHead, LayerLayout};
use crate::math::{expf, tanhf};
use crate::pool;

/// Query heads of a pass as the keys want them.
struct Queries {
    bytes: Vec<u8>,
    /// From head to head.
    stride: usize,
}

impl Queries {
    fn new(isa: Isa, layout: &LayerLayout, q: &[f32]) -> Queries {
        let size = layout.head_dim;
        let info = layout.types.keys.info();
        let act = info.and_then(|t| t.act).expect("checked when loading");
        let stride = act.info().and_then(|t| t.row_bytes(size as u64));
        let stride = stride.expect("whole blocks") as usize;
        let encode = kernels::quantize_act(act, isa);
        let mut bytes = vec![0; q.len() / size * stride];
        pool::chunks_mut(&mut bytes, stride, |head, to| {
            let mut own = q[head * size..][..size].to_vec();
            if let Some(n) = layout.key_turn() {
                hadamard(isa, &mut own, n);
            }
            encode(&own, to);
        });
        Queries { bytes, stride }
    }

    fn heads(&self, heads: Range<usize>) -> &[u8] {
        &self.bytes[heads.start * self.stride..heads.end * self.stride]
    }
}

impl Attention<'_, '_> {
    /// [`Attention::run`] over encoded pages.
    pub(super) fn run_encoded(&self, layout: &LayerLayout, q: &[f32]) -> Floats {
        let (size, kv_heads) = (layout.value_dim, layout.n_head);
        let shared = self.n_head / kv_heads;
        let queries = Queries::new(self.isa, layout, q);
        let mut out = Floats::scratch(q.len() / layout.head_dim * size);
        pool::chunks_mut(&mut out, shared * size, |chunk, out| {
            let (row, kv_head) = (chunk / kv_heads, chunk % kv_heads);
            let part = self.parts.iter().find(|part| part.rows.contains(&row));
            let part = part.expect("every row is of a part");
            let token = row - part.rows.start;
            let rows = self.rows(part, kv_head, token..token + 1);
            let head = row * self.n_head + kv_head * shared;
            let mut scores = self.dots(&rows, queries.heads(head..head + shared));
            if layout.types.is_online() {
                self.online(&rows, &scores, out);
            } else {
                for (head, scores) in scores.chunks_exact_mut(rows.cells.len()).enumerate() {
                    self.probabilities(&rows, (token, kv_head * shared + head), scores);
                }
                self.weighted(&rows, &mut scores, out);
            }
        });
        out
    }

    /// Calls `f` with the cells that the only token of `rows` sees, page by page, and their keys and values from the
    /// first of them on.
    fn pages(&self, rows: &HeadRows<'_, '_>, mut f: impl FnMut(Range<usize>, EncodedHead<'_>)) {
        let visible = self.visible(rows.part, rows.tokens.start);
        let layout = rows.layout();
        let mut at = visible.start;
        while at < visible.end {
            let page = at / layout.positions;
            let end = visible.end.min((page + 1) * layout.positions);
            let head = rows.part.seq.encoded(rows.layer, page, rows.kv_head);
            let from = at % layout.positions;
            let from = EncodedHead {
                keys: &head.keys[from * layout.key_bytes()..],
                values: &head.values[from * layout.value_bytes()..],
            };
            f(at..end, from);
            at = end;
        }
    }

    /// Scores of the heads of one token, `[heads][cells of rows]`; of cells that it does not see, 0.
    fn dots(&self, rows: &HeadRows<'_, '_>, queries: &[u8]) -> Vec<f32> {
        let layout = rows.layout();
        let (heads, width) = (rows.shared, rows.cells.len());
        let dots = kernels::mat_rows(layout.types.keys, self.isa).expect("checked when loading");
        let mut scores = vec![0f32; heads * width];
        let mut products = Vec::new();
        self.pages(rows, |cells, page| {
            products.resize(cells.len() * heads, 0f32);
            let keys = &page.keys[..cells.len() * layout.key_bytes()];
            dots.multiply(keys, queries, layout.head_dim, heads, &mut products);
            for (cell, products) in cells.zip(products.chunks_exact(heads)) {
                for (head, &product) in products.iter().enumerate() {
                    scores[head * width + cell - rows.cells.start] = product;
                }
            }
        });
        scores
    }

    /// The values of the visible cells, decoded page by page.
    fn values(&self, rows: &HeadRows<'_, '_>, mut f: impl FnMut(usize, &[f32])) {
        let layout = rows.layout();
        let size = layout.value_dim;
        let decode = kernels::decode_rows(layout.types.values, self.isa);
        let decode = decode.expect("checked when loading");
        let mut values = Vec::new();
        self.pages(rows, |cells, page| {
            values.resize(cells.len() * size, 0f32);
            decode(&page.values[..cells.len() * layout.value_bytes()], &mut values);
            for (cell, value) in cells.zip(values.chunks_exact(size)) {
                f(cell - rows.cells.start, value);
            }
        });
    }

    /// Sums of the values, each times its probability.
    fn weighted(&self, rows: &HeadRows<'_, '_>, probabilities: &mut [f32], out: &mut [f32]) {
        let layout = rows.layout();
        round(layout.types.values, self.isa, probabilities);
        let (width, size) = (rows.cells.len(), layout.value_dim);
        let mut sums = vec![0f64; out.len()];
        self.values(rows, |cell, value| {
            for (head, sums) in sums.chunks_exact_mut(size).enumerate() {
                let p = probabilities[head * width + cell];
                let terms = sums.iter_mut().zip(value);
                terms.for_each(|(sum, v)| *sum += f64::from(p * v));
            }
        });
        out.iter_mut().zip(&sums).for_each(|(o, &s)| *o = s as f32);
    }

    /// The same in one pass, of values of a quantized type.
    fn online(&self, rows: &HeadRows<'_, '_>, dots: &[f32], out: &mut [f32]) {
        let layout = rows.layout();
        let (width, size) = (rows.cells.len(), layout.value_dim);
        let position = rows.part.first() + rows.tokens.start;
        let first_head = rows.kv_head * rows.shared;
        out.fill(0.0);
        let mut states = vec![Online::default(); rows.shared];
        self.values(rows, |cell, value| {
            let distance = position.saturating_sub(rows.cells.start + cell);
            for (head, out) in out.chunks_exact_mut(size).enumerate() {
                let score = self.score(dots[head * width + cell], first_head + head, distance);
                let weight = states[head].add(score, out);
                let terms = out.iter_mut().zip(value);
                terms.for_each(|(o, v)| *o += v * weight);
            }
        });
        for (head, out) in out.chunks_exact_mut(size).enumerate() {
            let sinks = self.rules.map_or(&[][..], |rules| &rules.sinks);
            if let Some(&sink) = sinks.get(first_head + head) {
                states[head].add(sink, out);
            }
            let inverse = match states[head].total {
                0.0 => 0.0,
                total => 1.0 / total,
            };
            out.iter_mut().for_each(|o| *o *= inverse);
            if let Some(n) = layout.value_turn() {
                hadamard(self.isa, out, n);
            }
        }
    }

    /// A dot product with all that is done to it before the exponential.
    fn score(&self, dot: f32, head: usize, distance: usize) -> f32 {
        let cap = self.rules.and_then(|rules| rules.cap);
        let slopes = self.rules.map_or(&[][..], |rules| &rules.slopes);
        let score = match cap {
            Some([_, cap]) => cap * tanhf(dot * (self.scale / cap)),
            None => dot * self.scale,
        };
        // distances are kept as half floats in the reference's mask
        let mut distance = [-(distance as f32)];
        match slopes.get(head) {
            Some(slope) => {
                round(TypeId::F16, self.isa, &mut distance);
                score + slope * distance[0]
            }
            None => score + 0.0,
        }
    }
}

/// Running maximum and total of one head's soft-max.
#[derive(Clone)]
struct Online {
    greatest: f32,
    /// Sum of the weights.
    total: f32,
}

impl Default for Online {
    fn default() -> Online {
        Online { greatest: f32::NEG_INFINITY, total: 0.0 }
    }
}

impl Online {
    /// Takes a score into account; its weight. Where it is the greatest so far, `out`, what was added up before, gets
    /// smaller.
    fn add(&mut self, score: f32, out: &mut [f32]) -> f32 {
        let weight = if score > self.greatest {
            let factor = expf(self.greatest - score);
            self.greatest = score;
            self.total *= factor;
            out.iter_mut().for_each(|o| *o *= factor);
            1.0
        } else {
            expf(score - self.greatest)
        };
        self.total += weight;
        weight
    }
}

/// Rounds numbers to a type of floats.
fn round(ty: TypeId, isa: Isa, x: &mut [f32]) {
    if ty == TypeId::F32 {
        return;
    }
    let decode = kernels::decode_rows(ty, isa).expect("a type of floats");
    let mut bytes = vec![0; x.len() * 2];
    kernels::quantize_act(ty, isa)(x, &mut bytes);
    decode(&bytes, x);
}
