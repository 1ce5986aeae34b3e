//! Causal attention over a half-float cache, with or without a sliding window.
//!
//! Per query and head, in the reference's order (flash attention off):
//! scores `S_j = f32(sum_d q_d k_jd)`, products exact, sum in `f64` in index order, `q` rounded to half;
//! `w_j = S_j * scale + 0`; `e_j = pexp(w_j - max w)`; total in `f64` over groups of four cells, each
//! group summed in `f32` as `(e0 + e1) + (e2 + e3)`, groups counted from cell 0; `p_j = half(e_j / total)`;
//! `o_d = f32(sum_j p_j v_jd)`, again exact products summed in `f64` in order of the cells.
//! Cells outside the window count as probability +0, which changes no sum.
//!
//! A query head and a token make a *row*. All rows of a KV head over a few tokens are one task: they
//! share every cache line that is widened. One token over a long cache with few KV heads is split
//! otherwise: its scores by cells, its outputs by head elements, never a sum.

use std::cell::RefCell;
use std::ops::Range;

use crate::kernels::elements::soft_max;
use crate::kernels::halves::{self, Coefficients, LINE, STEPS};
use crate::kernels::{Floats, Isa};
use crate::model::kv::{HeadCache, LayerCache, TILE};
use crate::pool::{self, Tile};

#[cfg(test)]
mod tests;

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

/// Rows of one task: a multiple of what the kernels take at once.
const ROWS: usize = 30;
/// Scores of one task, fewer rows where the cache is long: they are to stay in the second-level cache.
const SCORES: usize = 1 << 17;
/// Cells whose probabilities are turned into coefficients at a time.
const CHUNK: usize = 128;
/// Words of cells that are added up before other head elements have their turn, with few and with many rows: with
/// few, memory is the limit and is to be read in sequence.
const AT_ONCE: [usize; 2] = [TILE / STEPS, CHUNK / STEPS];
/// Multiplications from which one token's heads are worth splitting.
const SPLIT: usize = 1 << 20;

#[derive(Default)]
struct Scratch {
    coefs: Vec<f64>,
    scores: Vec<f32>,
    probabilities: Vec<f64>,
    sums: Vec<f64>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Of the token that is being split, while its tasks use the other.
    static SPLIT_SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// `len` elements of a buffer that grows as needed, from a line of the cache on.
fn aligned<T: Copy + Default>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    let spare = 64 / size_of::<T>();
    if buffer.len() < len + spare {
        buffer.resize(len + spare, T::default());
    }
    let at = buffer.as_ptr().align_offset(64).min(spare);
    &mut buffer[at..at + len]
}

/// The rows of one KV head that are computed together.
struct Rows<'a> {
    head: &'a HeadCache,
    tokens: Range<usize>,
    /// Rows per token.
    shared: usize,
    /// Cells that some row sees, from a tile's start on, so that groups of four keep their place.
    cells: Range<usize>,
}

impl Attention<'_> {
    /// `q` is `[tokens][n_head * head_dim]`; the result has the same shape.
    pub fn run(&self, q: &[f32]) -> Floats {
        let hd = self.cache.head_dim;
        let kv_heads = self.cache.heads.len();
        let (width, shared) = (self.n_head * hd, self.n_head / kv_heads);
        let tokens = q.len() / width;
        let mut out = Floats::scratch(q.len());
        if tokens == 0 {
            return out;
        }
        let cells = self.rows(0, 0..tokens).cells.len();
        let threads = pool::threads();
        if tokens == 1 && threads > 1 && kv_heads < 4 * threads && cells * width >= SPLIT {
            SPLIT_SCRATCH.with_borrow_mut(|scratch| self.split(q, &mut out, scratch));
            return out;
        }
        let rows = (SCORES / cells).clamp(halves::rows_at_once(self.isa), ROWS);
        let size = ((rows / shared).clamp(1, tokens), shared * hd);
        pool::tiles_mut(&mut out, width, size, |tile| {
            SCRATCH.with_borrow_mut(|scratch| self.block(q, tile, scratch));
        });
        out
    }

    /// Cells that token `t` of the call sees.
    fn visible(&self, t: usize) -> Range<usize> {
        let end = self.first + t + 1;
        self.window.map_or(0, |w| end.saturating_sub(w))..end
    }

    fn rows(&self, kv_head: usize, tokens: Range<usize>) -> Rows<'_> {
        let begin = self.visible(tokens.start).start / TILE * TILE;
        let end = self.first + tokens.end;
        Rows {
            head: &self.cache.heads[kv_head],
            tokens,
            shared: self.n_head / self.cache.heads.len(),
            cells: begin..end.next_multiple_of(TILE),
        }
    }

    /// One task of many: the outputs of some tokens for the query heads of one KV head.
    fn block(&self, q: &[f32], mut tile: Tile<'_, f32>, scratch: &mut Scratch) {
        let hd = self.cache.head_dim;
        let rows = self.rows(tile.cols.start / tile.cols.len(), tile.rows.clone());
        let n = tile.rows.len() * rows.shared;
        let steps = STEPS * rows.head.key_quads();
        let coefs = aligned(&mut scratch.coefs, n * steps);
        for (i, t) in tile.rows.clone().enumerate() {
            let width = self.n_head * hd;
            let q = &q[t * width + tile.cols.start..][..tile.cols.len()];
            self.queries(q, &mut coefs[i * rows.shared * steps..]);
        }
        let width = rows.cells.len();
        let scores = aligned(&mut scratch.scores, n * width);
        self.scores(&rows, coefs, rows.cells.clone(), scores, width);
        for (row, scores) in scores.chunks_exact_mut(width).enumerate() {
            let t = rows.tokens.start + row / rows.shared;
            self.probabilities(t, rows.cells.start, scores);
        }
        let lines = rows.head.value_lines();
        let sums = aligned(&mut scratch.sums, n * lines * LINE);
        let buffer = aligned(&mut scratch.probabilities, n * CHUNK);
        self.outputs(&rows, scores, 0..lines, buffer, sums);
        for (row, sums) in sums.chunks_exact(lines * LINE).enumerate() {
            let out = &mut tile.row(row / rows.shared)[row % rows.shared * hd..][..hd];
            out.iter_mut().zip(sums).for_each(|(o, &s)| *o = s as f32);
        }
    }

    /// One token, split over the pool in three steps.
    fn split(&self, q: &[f32], out: &mut [f32], scratch: &mut Scratch) {
        let hd = self.cache.head_dim;
        let kv_heads = self.cache.heads.len();
        let first = self.rows(0, 0..1);
        let (shared, width) = (first.shared, first.cells.len());
        let steps = STEPS * first.head.key_quads();
        let coefs = aligned(&mut scratch.coefs, self.n_head * steps);
        self.queries(q, coefs);
        let scores = aligned(&mut scratch.scores, self.n_head * width);
        let pieces = (4 * pool::threads()).div_ceil(kv_heads);
        let size = (shared, width.div_ceil(pieces).next_multiple_of(TILE));
        pool::tiles_mut(scores, width, size, |mut tile| {
            SCRATCH.with_borrow_mut(|scratch| {
                let rows = self.rows(tile.rows.start / shared, 0..1);
                let cells = rows.cells.start + tile.cols.start..rows.cells.start + tile.cols.end;
                let n = cells.len();
                let scores = aligned(&mut scratch.scores, shared * n);
                let coefs = &coefs[tile.rows.start * steps..];
                self.scores(&rows, coefs, cells, scores, n);
                for (row, scores) in scores.chunks_exact(n).enumerate() {
                    tile.row(row).copy_from_slice(scores);
                }
            });
        });
        pool::chunks_mut(scores, width, |_, row| {
            self.probabilities(0, first.cells.start, row);
        });
        let scores = &*scores;
        let lanes = 32;
        pool::tiles_mut(out, hd, (shared, lanes), |mut tile| {
            SCRATCH.with_borrow_mut(|scratch| {
                let rows = self.rows(tile.rows.start / shared, 0..1);
                let lines = tile.cols.start / LINE..tile.cols.end.div_ceil(LINE);
                let n = lines.len() * LINE;
                let sums = aligned(&mut scratch.sums, shared * n);
                let buffer = aligned(&mut scratch.probabilities, shared * CHUNK);
                let scores = &scores[tile.rows.start * width..];
                self.outputs(&rows, scores, lines, buffer, sums);
                for (row, sums) in sums.chunks_exact(n).enumerate() {
                    let out = tile.row(row).iter_mut();
                    out.zip(sums).for_each(|(o, &s)| *o = s as f32);
                }
            });
        });
    }

    /// Heads of a token as rows of coefficients, whole words of elements.
    fn queries(&self, q: &[f32], coefs: &mut [f64]) {
        let hd = self.cache.head_dim;
        let steps = hd.next_multiple_of(STEPS);
        for (q, coefs) in q.chunks_exact(hd).zip(coefs.chunks_exact_mut(steps)) {
            halves::coefficients(self.isa, q, &mut coefs[..hd]);
            coefs[hd..].fill(0.0);
        }
    }

    /// Scores of all rows for `cells`, whole tiles, `width` from row to row; of tiles that a row does not see, anything.
    fn scores(
        &self,
        rows: &Rows<'_>,
        coefs: &[f64],
        cells: Range<usize>,
        out: &mut [f32],
        width: usize,
    ) {
        let quads = rows.head.key_quads();
        for tile in cells.start / TILE..cells.end / TILE {
            let seen = self.seeing(rows, tile * TILE..(tile + 1) * TILE);
            let coefs = Coefficients {
                data: &coefs[seen.start * STEPS * quads..],
                stride: STEPS * quads,
                rows: seen.len(),
            };
            let out = &mut out[seen.start * width + tile * TILE - cells.start..];
            let keys = rows.head.keys(tile);
            if rows.head.is_special(tile) {
                halves::dots_special(keys, quads, coefs, out, width);
            } else {
                halves::dots(self.isa, keys, quads, coefs, out, width);
            }
        }
    }

    /// Rows that see one of `cells`.
    fn seeing(&self, rows: &Rows<'_>, cells: Range<usize>) -> Range<usize> {
        let Range { start, end } = rows.tokens;
        let from = cells.start.saturating_sub(self.first).clamp(start, end);
        let to = match self.window {
            Some(w) => (cells.end + w - 1)
                .saturating_sub(self.first)
                .clamp(from, end),
            None => end,
        };
        (from - start) * rows.shared..(to - start) * rows.shared
    }

    /// Scores of a row of token `t`, which start at cell `begin`, to probabilities.
    fn probabilities(&self, t: usize, begin: usize, scores: &mut [f32]) {
        let visible = self.visible(t);
        let visible = visible.start - begin..visible.end - begin;
        soft_max(self.isa, scores, visible, self.scale);
    }

    /// Sums of `lines` of the outputs of all rows, `[rows][8 * lines]`. `buffer` holds [`CHUNK`] coefficients per row.
    fn outputs(
        &self,
        rows: &Rows<'_>,
        probabilities: &[f32],
        lines: Range<usize>,
        buffer: &mut [f64],
        sums: &mut [f64],
    ) {
        sums.fill(0.0);
        let (lanes, width) = (lines.len() * LINE, rows.cells.len());
        let at_once = halves::rows_at_once(self.isa);
        for begin in rows.cells.clone().step_by(CHUNK) {
            let chunk = begin..rows.cells.end.min(begin + CHUNK);
            let seen = self.seeing(rows, chunk.clone());
            for row in seen.clone() {
                let at = row * width + begin - rows.cells.start;
                let p = &probabilities[at..][..chunk.len()];
                halves::coefficients(self.isa, p, &mut buffer[row * CHUNK..][..chunk.len()]);
            }
            // Cells of the chunk that a row sees.
            let steps = |row: usize| {
                let visible = self.visible(rows.tokens.start + row / rows.shared);
                visible.start.max(begin) - begin..visible.end.min(chunk.end) - begin
            };
            let quads = AT_ONCE[usize::from(seen.len() > at_once)];
            let values = rows.head.values(begin / TILE, lines.clone(), quads);
            if (begin / TILE..chunk.end / TILE).any(|tile| rows.head.is_special(tile)) {
                for row in seen {
                    let p = &buffer[row * CHUNK..][..CHUNK];
                    let sums = &mut sums[row * lanes..][..lanes];
                    halves::accumulate_special(values, steps(row), p, sums);
                }
                continue;
            }
            let turns = seen.len().div_ceil(at_once);
            let mut row = seen.start;
            for turn in 0..turns {
                let n = (seen.end - row).div_ceil(turns - turn);
                // The first row of the turn has the first cell, the last row the last.
                let quads = steps(row).start / STEPS..steps(row + n - 1).end.div_ceil(STEPS);
                let coefs = Coefficients {
                    data: &buffer[row * CHUNK..],
                    stride: CHUNK,
                    rows: n,
                };
                halves::accumulate(
                    self.isa,
                    values,
                    quads,
                    coefs,
                    &mut sums[row * lanes..],
                    lanes,
                );
                row += n;
            }
        }
    }
}
