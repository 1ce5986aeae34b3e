//! Attention to the last positions, and to one compressed key for every block of all positions (DeepSeek 4). Keys are
//! values as well.
//!
//! The KV cache holds a position's key as its key, and the compressed key of the block that ends with the position as
//! its value. The soft-max ([`super::ScoreRules`]) goes over the cells of the window, the compressed keys and the sink;
//! groups of four scores that are added up in `f32` begin anew with the first compressed key. Queries, keys and
//! probabilities are half floats; their products are rounded to `f32` and added up in `f64`, the window first.

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::Window;
use crate::kernels::elements::{soft_max, soft_max_with_sink};
use crate::kernels::halves::{BLOCK, LINE, STEPS};
use crate::kernels::{Floats, Isa};
use crate::kv::{Sequence, SequenceRows, TILE};
use crate::pool;

/// Attention of one layer.
#[derive(Clone, Debug)]
pub struct AttendCompressed {
    /// The layer of the KV cache.
    pub cache: usize,
    /// Query heads, which share all keys.
    pub heads: usize,
    /// Elements of a query and of a key.
    pub size: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Positions that queries attend to by their own keys.
    pub window: Window,
    /// Positions of a block.
    pub ratio: usize,
    /// Per query head the score of a cell that every query attends to and that has no value.
    pub sinks: Vec<f32>,
}

/// Keys of a sequence as numbers, from some position and some block on.
struct Keys {
    /// `[positions][size]`
    own: Vec<f32>,
    /// The first of these positions, a multiple of 4.
    from: usize,
    /// `[blocks][size]`
    compressed: Vec<f32>,
}

impl AttendCompressed {
    /// Output of the heads, `[rows of the pass][heads * size]`, for queries of that shape. Keys of the pass are in the
    /// cache.
    pub fn run(&self, isa: Isa, parts: &[SequenceRows<'_>], q: &[f32]) -> Floats {
        let width = self.heads * self.size;
        let mut out = Floats::scratch(q.len());
        out.fill(0.0);
        for part in parts.iter().filter(|part| !part.rows.is_empty()) {
            let keys = self.keys(part.seq, part.positions());
            let rows = part.rows.start * width..part.rows.end * width;
            let q = &q[rows.clone()];
            pool::chunks_mut(&mut out[rows], self.size, |row, out| {
                let position = part.first() + row / self.heads;
                self.head(isa, &keys, [position, row % self.heads], &q[row * self.size..][..self.size], out);
            });
        }
        out
    }

    /// The keys that queries at `positions` attend to.
    fn keys(&self, seq: &Sequence, positions: std::ops::Range<usize>) -> Keys {
        let from = self.window.first(positions.start) / STEPS * STEPS;
        let blocks = positions.end / self.ratio;
        let own = pool_rows(from..positions.end, self.size, |position, row| self.key(seq, position, row));
        let compressed = pool_rows(0..blocks, self.size, |block, row| {
            self.compressed_key(seq, (block + 1) * self.ratio - 1, row);
        });
        Keys { own, from, compressed }
    }

    /// The key of a position.
    fn key(&self, seq: &Sequence, position: usize, row: &mut [f32]) {
        let (page, tile) = seq.tile(self.cache, 0, position / TILE);
        let (lines, form, lane) = (page.keys(tile), page.form(tile), position % TILE);
        for (e, v) in row.iter_mut().enumerate() {
            let word = lines[e / STEPS * BLOCK + lane / LINE].0[lane % LINE];
            *v = form.value((word >> (16 * (e % STEPS))) as u16);
        }
    }

    /// The compressed key of the block that ends with a position.
    fn compressed_key(&self, seq: &Sequence, position: usize, row: &mut [f32]) {
        let (page, tile) = seq.tile(self.cache, 0, position / TILE);
        let lines = self.size.div_ceil(LINE);
        let values = page.values(tile, 0..lines, TILE / STEPS);
        let form = page.form(tile);
        row.iter_mut().enumerate().for_each(|(e, v)| *v = values.value(form, e, position % TILE) as f32);
    }

    /// Output of one head.
    fn head(&self, isa: Isa, keys: &Keys, [position, head]: [usize; 2], q: &[f32], out: &mut [f32]) {
        let n = self.size;
        let (row, in_window) = self.probabilities(isa, keys, [position, head], q);
        let (window, rest) = row.split_at(in_window);
        let (seen, compressed) = self.seen(keys, position);
        let mut sums = vec![0f64; n];
        for (p, key) in window.iter().zip(seen.chunks_exact(n)).chain(rest.iter().zip(compressed.chunks_exact(n))) {
            let p = half(*p);
            sums.iter_mut().zip(key).for_each(|(sum, v)| *sum += f64::from(p * v));
        }
        out.iter_mut().zip(&sums).for_each(|(out, &sum)| *out = sum as f32);
    }

    /// Keys of the window's cells, from the beginning of a group of four on, and compressed keys.
    fn seen<'k>(&self, keys: &'k Keys, position: usize) -> (&'k [f32], &'k [f32]) {
        let n = self.size;
        let first = self.window.first(position) / STEPS * STEPS;
        let own = &keys.own[(first - keys.from) * n..(position + 1 - keys.from) * n];
        (own, &keys.compressed[..(position + 1) / self.ratio * n])
    }

    /// Probabilities of one head: those of the window's cells, whose number in whole groups is returned too, and of the
    /// compressed keys.
    fn probabilities(&self, isa: Isa, keys: &Keys, [position, head]: [usize; 2], q: &[f32]) -> (Vec<f32>, usize) {
        let n = self.size;
        let q: Vec<f32> = q.iter().map(|&q| half(q)).collect();
        let first = self.window.first(position) / STEPS * STEPS;
        let (seen, compressed) = self.seen(keys, position);
        // cells of the window's first group that are not in it, and of its last that come later, count nothing
        let in_window = (position + 1 - first).next_multiple_of(STEPS);
        let cells = in_window + compressed.len() / n;
        let mut row = vec![f32::NEG_INFINITY; cells.next_multiple_of(16)];
        let (window, rest) = row.split_at_mut(in_window);
        let score = |key: &[f32]| {
            let terms = key.iter().zip(&q);
            terms.fold(0f64, |sum, (k, q)| sum + f64::from(k * q)) as f32
        };
        let hidden = self.window.first(position) - first;
        window.iter_mut().zip(seen.chunks_exact(n)).skip(hidden).for_each(|(s, key)| *s = score(key));
        rest.iter_mut().zip(compressed.chunks_exact(n)).for_each(|(s, key)| *s = score(key));
        match self.sinks.get(head) {
            Some(&sink) => soft_max_with_sink(isa, &mut row, 0..cells, self.scale, sink),
            None => soft_max(isa, &mut row, 0..cells, self.scale),
        }
        row.truncate(cells);
        (row, in_window)
    }
}

/// Rows of `size` numbers that `fill` makes, one for each of `numbers`.
fn pool_rows(numbers: std::ops::Range<usize>, size: usize, fill: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    let mut rows = vec![0f32; numbers.len() * size];
    pool::chunks_mut(&mut rows, TILE * size, |i, rows| {
        let numbers = numbers.start + i * TILE..;
        rows.chunks_exact_mut(size).zip(numbers).for_each(|(row, number)| fill(number, row));
    });
    rows
}

fn half(x: f32) -> f32 {
    f16_to_f32(f32_to_f16(x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::Random;
    use crate::kv::{PageLayout, PagePool, store};
    use crate::math::{expf, pexp};

    #[test]
    fn queries_attend_to_the_window_and_to_whole_blocks() {
        let mut random = Random(0xa77e);
        let (heads, size, tokens, ratio) = (2, 8, 150, 4);
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.float()).collect() };
        let (q, k, c) = (floats(tokens * heads * size), floats(tokens * size), floats(tokens * size));
        let rule = AttendCompressed {
            cache: 0,
            heads,
            size,
            scale: 0.5,
            window: Window { size: 10, chunked: false },
            ratio,
            sinks: vec![0.25, -1.0],
        };
        let pages = PagePool::new(PageLayout::new(1, 1, [size, size]), 1 << 20);
        let run = |steps: &[usize]| -> Vec<f32> {
            let (mut seq, mut y, mut from) = (pages.sequence(), Vec::new(), 0);
            for &step in steps {
                seq.reserve(step).expect("room");
                let of = |x: &'_ [f32], width: usize| x[from * width..(from + step) * width].to_vec();
                let (q, k, c) = (of(&q, heads * size), of(&k, size), of(&c, size));
                let mut parts = [SequenceRows { seq: &mut seq, rows: 0..step }];
                store(Isa::detect(), 0, &mut parts, &k, &c);
                y.extend_from_slice(&rule.run(Isa::detect(), &parts, &q));
                seq.advance(step);
                from += step;
            }
            y
        };
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let whole = run(&[tokens]);
        assert_eq!(bits(&run(&[1, 2, 70, 3, 74])), bits(&whole));
        // all cells in whole groups, hidden ones at minus infinity, and then the compressed keys
        for t in [0, 3, 9, 10, 12, 31, 149] {
            for head in 0..heads {
                let q = &q[(t * heads + head) * size..][..size];
                let score = |k: &[f32], seen: bool| {
                    let terms = k.iter().zip(q);
                    let sum = terms.fold(0f64, |sum, (k, q)| sum + f64::from(half(*k) * half(*q))) as f32;
                    if seen { sum * 0.5 } else { f32::NEG_INFINITY }
                };
                let row_of = |x: &'_ [f32], p: usize| x[p * size..][..size].to_vec();
                let mut keys: Vec<(Vec<f32>, bool)> = (0..tokens.next_multiple_of(4))
                    .map(|p| (row_of(&k, p.min(tokens - 1)), p <= t && p + 10 > t))
                    .collect();
                keys.extend((0..tokens / ratio).map(|b| (row_of(&c, (b + 1) * ratio - 1), b < (t + 1) / ratio)));
                let scores: Vec<f32> = keys.iter().map(|(k, seen)| score(k, *seen)).collect();
                let max = scores.iter().fold(rule.sinks[head], |max, &s| max.max(s));
                let e: Vec<f32> = scores.iter().map(|s| pexp(s - max)).collect();
                let groups = e.chunks(4).map(|e| {
                    let of = |i: usize| e.get(i).copied().unwrap_or(0.0);
                    f64::from((of(0) + of(1)) + (of(2) + of(3)))
                });
                let total = groups.fold(0f64, |sum, e| sum + e) + f64::from(expf(rule.sinks[head] - max));
                let inverse = (1.0 / total) as f32;
                let own = &k[..(t + 1) * size];
                let blocks = c.chunks_exact(size).skip(ratio - 1).step_by(ratio).take((t + 1) / ratio);
                let halves = |x: &[f32]| x.iter().map(|&x| half(x)).collect::<Vec<f32>>();
                let (own, compressed) = (halves(own), halves(&blocks.flatten().copied().collect::<Vec<f32>>()));
                let (got, in_window) =
                    rule.probabilities(Isa::detect(), &Keys { own, from: 0, compressed }, [t, head], q);
                let first = (t + 1usize).saturating_sub(10) / 4 * 4;
                let windowed = (0..in_window).map(|i| first + i).map(|p| if p <= t { e[p] } else { 0.0 });
                let expected = windowed.chain(e[tokens.next_multiple_of(4)..].iter().copied().take((t + 1) / ratio));
                let expected: Vec<u32> = expected.map(|e| (e * inverse).to_bits()).collect();
                assert_eq!(bits(&got), expected, "{t} {head}");
                for i in 0..size {
                    let terms = keys.iter().zip(&e).map(|((k, _), e)| half(e * inverse) * half(k[i]));
                    let sum = terms.fold(0f64, |sum, term| sum + f64::from(term)) as f32;
                    assert_eq!(whole[(t * heads + head) * size + i].to_bits(), sum.to_bits(), "{t} {head} {i}");
                }
            }
        }
    }
}
