//! Causal attention over the half floats of [`crate::kv`], with or without a sliding window.
//!
//! Per query and head, in the reference's order (flash attention off):
//! scores `S_j = f32(sum_d q_d k_jd)`, products exact, sum in `f64` in index order, `q` rounded to half;
//! `w_j = S_j * scale + 0`; `e_j = pexp(w_j - max w)`; total in `f64` over groups of four cells, each
//! group summed in `f32` as `(e0 + e1) + (e2 + e3)`, groups counted from cell 0; `p_j = half(e_j / total)`;
//! `o_d = f32(sum_j p_j v_jd)`, again exact products summed in `f64` in order of the cells.
//! Cells outside the window count as probability +0, which changes no sum.
//!
//! A query head and a token make a *row*. All rows of a KV head over some tokens of one sequence are one task: they
//! share every cache line that is widened. A pass of one token over a long cache with few KV heads is split
//! otherwise: its scores by cells, its outputs by head elements, never a sum. Cells are read page by page, in order.

use std::cell::RefCell;
use std::ops::Range;

use crate::kernels::Floats;
use crate::kernels::elements::soft_max;
use crate::kernels::halves::form::PLAIN;
use crate::kernels::halves::{self, Coefficients, F16Encoding, LINE, STEPS};
use crate::kv::{self, LayerLayout, TILE};
use crate::pool::{self, Tile};

mod compressed;
mod encoded;
mod placed;
mod relative;
mod rows;
mod scores;
mod source;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tiled;
mod whole;

pub use compressed::AttendCompressed;
use placed::in_cells;
pub use relative::{Relative, RelativeBack};
pub use rows::Attention;
use rows::{CHUNK, HeadRows, Scratch, aligned, even};
pub use scores::{Reach, ScoreRules, Window, alibi_slopes};
pub use source::AttendSource;
pub use whole::{BothWays, Heads};

/// Minimum and maximum number of rows of a task: multiples of what the kernels take at once.
const ROWS: [usize; 2] = [30, 60];
/// Scores of one task, fewer rows where the cache is long: they are to stay in the second-level cache.
const SCORES: usize = 1 << 17;
/// Words of cells that are added up before other head elements have their turn, with few and with many rows: with
/// few, memory is the limit and is to be read in sequence.
const AT_ONCE: [usize; 2] = [TILE / STEPS, CHUNK / STEPS];
/// Multiplications from which one token's heads are worth splitting.
const SPLIT: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Memory for the token that is being split, while its tasks use the other scratch.
    static SPLIT_SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Attention<'_, '_> {
    /// `q` is `[rows of the pass][n_head * key size]`; the result is `[rows of the pass][n_head * value size]`.
    pub fn run(&self, q: &[f32]) -> Floats {
        let Some(part) = self.parts.first() else {
            return Floats::scratch(0);
        };
        let layout = self.layout(part);
        if layout.types.is_encoded() {
            return self.run_encoded(&layout, q);
        }
        let (vd, kv_heads) = (layout.value_dim, layout.n_head);
        let (width, shared) = (self.n_head * layout.head_dim, self.n_head / kv_heads);
        let mut out = Floats::scratch(q.len() / width * self.n_head * vd);
        let threads = pool::threads();
        if q.len() == width && threads > 1 && kv_heads < 4 * threads {
            let rows = self.rows(part, 0, 0..1);
            if rows.cells.len() * width >= SPLIT {
                SPLIT_SCRATCH.with_borrow_mut(|scratch| self.split(&rows, q, &mut out, scratch));
                return out;
            }
        }
        let tasks = self.tasks(shared);
        let blocks: Vec<Range<usize>> = tasks
            .iter()
            .map(|(part, tokens)| {
                let first = self.parts[*part].rows.start;
                first + tokens.start..first + tokens.end
            })
            .collect();
        let width = self.n_head * vd;
        pool::blocks_mut(&mut out, width, &blocks, shared * vd, |block, tile| {
            let (part, tokens) = &tasks[block];
            let kv_head = tile.cols.start / (shared * vd);
            let rows = self.rows(&self.parts[*part], kv_head, tokens.clone());
            SCRATCH.with_borrow_mut(|scratch| self.block(&rows, q, tile, scratch));
        });
        out
    }

    /// Tokens that are computed together, each with the number of its part, those that see most cells first.
    fn tasks(&self, shared: usize) -> Vec<(usize, Range<usize>)> {
        let mut tasks = Vec::new();
        for (no, part) in self.parts.iter().enumerate() {
            let tokens = part.rows.len();
            if tokens == 0 {
                continue;
            }
            let cells = self.rows(part, 0, 0..tokens).cells.len();
            let rows = self.rows_of_a_task(part, tokens * shared, cells);
            let at_once = (rows / shared).clamp(1, tokens);
            let starts = (0..tokens).step_by(at_once);
            tasks.extend(starts.map(|t| (no, t..tokens.min(t + at_once))));
        }
        tasks.sort_by_key(|(part, tokens)| std::cmp::Reverse(self.parts[*part].first() + tokens.end));
        tasks
    }

    /// Layout of the layer in the pages of a part.
    fn layout(&self, part: &kv::SequenceRows<'_>) -> LayerLayout {
        part.seq.layout().layer(self.layer)
    }

    /// Rows of a task, for `rows` rows of a KV head that attend to `cells` cells.
    fn rows_of_a_task(&self, part: &kv::SequenceRows<'_>, rows: usize, cells: usize) -> usize {
        #[cfg(target_arch = "x86_64")]
        if tiled::take(self.isa, &self.layout(part), rows) {
            return tiled::rows(&self.layout(part), rows, cells);
        }
        let rows = even(&self.layout(part), rows).clamp(ROWS[0], ROWS[1]);
        (SCORES / cells).clamp(halves::rows_at_once(self.isa), rows)
    }

    /// Cells that token `t` of a part sees.
    fn visible(&self, part: &kv::SequenceRows<'_>, t: usize) -> Range<usize> {
        let position = part.first() + t;
        let end = match self.reach {
            Reach::Own => position + 1,
            Reach::Pass => self.stored(part),
            Reach::Before => part.first(),
        };
        self.window.map_or(0, |w| w.first(position))..end
    }

    /// Cells of a part that have keys and values.
    fn stored(&self, part: &kv::SequenceRows<'_>) -> usize {
        match self.reach {
            Reach::Own | Reach::Pass => part.positions().end,
            Reach::Before => part.first(),
        }
    }

    fn rows<'r, 's>(&self, part: &'r kv::SequenceRows<'s>, kv_head: usize, tokens: Range<usize>) -> HeadRows<'r, 's> {
        let begin = self.visible(part, tokens.start).start / TILE * TILE;
        let end = self.visible(part, tokens.end - 1).end;
        HeadRows {
            part,
            layer: self.layer,
            kv_head,
            tokens,
            shared: self.n_head / self.layout(part).n_head,
            cells: begin..end.next_multiple_of(TILE),
        }
    }

    /// One task of many: the outputs of some tokens for the query heads of one KV head.
    fn block(&self, rows: &HeadRows<'_, '_>, q: &[f32], mut tile: Tile<'_, f32>, scratch: &mut Scratch) {
        let layout = rows.layout();
        let (hd, vd) = (layout.head_dim, layout.value_dim);
        let n = tile.rows.len() * rows.shared;
        #[cfg(target_arch = "x86_64")]
        if tiled::take(self.isa, &layout, n) {
            return self.block_in_tiles(rows, q, tile, scratch);
        }
        let steps = hd.next_multiple_of(STEPS);
        let coefs = aligned(&mut scratch.coefs, n * steps);
        for (i, t) in tile.rows.clone().enumerate() {
            let head = t * self.n_head + rows.kv_head * rows.shared;
            let q = &q[head * hd..][..rows.shared * hd];
            self.queries(hd, q, &mut coefs[i * rows.shared * steps..]);
        }
        let width = rows.cells.len();
        let scores = aligned(&mut scratch.scores, n * width);
        self.scores(rows, coefs, rows.cells.clone(), scores, width);
        for (row, scores) in scores.chunks_exact_mut(width).enumerate() {
            let t = rows.tokens.start + row / rows.shared;
            let head = rows.kv_head * rows.shared + row % rows.shared;
            self.probabilities(rows, (t, head), scores);
        }
        let lines = vd.div_ceil(LINE);
        let sums = aligned(&mut scratch.sums, n * lines * LINE);
        let buffer = aligned(&mut scratch.probabilities, n * CHUNK);
        self.outputs(rows, scores, 0..lines, buffer, sums);
        for (row, sums) in sums.chunks_exact(lines * LINE).enumerate() {
            let out = &mut tile.row(row / rows.shared)[row % rows.shared * vd..][..vd];
            out.iter_mut().zip(sums).for_each(|(o, &s)| *o = s as f32);
        }
    }

    /// A pass of one token, split over the pool in three steps. `first`: its rows with KV head 0.
    fn split(&self, first: &HeadRows<'_, '_>, q: &[f32], out: &mut [f32], scratch: &mut Scratch) {
        let part = first.part;
        let layout = first.layout();
        let (hd, kv_heads) = (layout.head_dim, layout.n_head);
        let (shared, width) = (first.shared, first.cells.len());
        let steps = hd.next_multiple_of(STEPS);
        let coefs = aligned(&mut scratch.coefs, self.n_head * steps);
        self.queries(hd, q, coefs);
        let scores = aligned(&mut scratch.scores, self.n_head * width);
        let parts = (4 * pool::threads()).div_ceil(kv_heads);
        let size = (shared, width.div_ceil(parts).next_multiple_of(TILE));
        pool::tiles_mut(scores, width, size, |mut tile| {
            SCRATCH.with_borrow_mut(|scratch| {
                let rows = self.rows(part, tile.rows.start / shared, 0..1);
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
        pool::chunks_mut(scores, width, |head, row| {
            self.probabilities(first, (0, head), row);
        });
        let scores = &*scores;
        let lanes = 32;
        pool::tiles_mut(out, layout.value_dim, (shared, lanes), |mut tile| {
            SCRATCH.with_borrow_mut(|scratch| {
                let rows = self.rows(part, tile.rows.start / shared, 0..1);
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
    fn queries(&self, hd: usize, q: &[f32], coefs: &mut [f64]) {
        let steps = hd.next_multiple_of(STEPS);
        for (q, coefs) in q.chunks_exact(hd).zip(coefs.chunks_exact_mut(steps)) {
            halves::coefficients(self.isa, q, &mut coefs[..hd]);
            coefs[hd..].fill(0.0);
        }
    }

    /// Scores of all rows for `cells`, whole tiles, `width` from row to row; of tiles that a row does not see,
    /// anything.
    fn scores(&self, rows: &HeadRows<'_, '_>, coefs: &[f64], cells: Range<usize>, out: &mut [f32], width: usize) {
        let quads = rows.layout().head_dim.div_ceil(STEPS);
        for tile in cells.start / TILE..cells.end / TILE {
            let seen = self.seeing(rows, tile * TILE..(tile + 1) * TILE);
            let coefs =
                Coefficients { data: &coefs[seen.start * STEPS * quads..], stride: STEPS * quads, rows: seen.len() };
            let out = &mut out[seen.start * width + tile * TILE - cells.start..];
            let (page, tile) = rows.tile(tile);
            let keys = (page.keys(tile), page.form(tile));
            halves::dots(self.isa, keys, quads, coefs, out, width);
        }
    }

    /// Rows that see one of `cells`.
    fn seeing(&self, rows: &HeadRows<'_, '_>, cells: Range<usize>) -> Range<usize> {
        let (Range { start, end }, first) = (rows.tokens.clone(), rows.part.first());
        let from = match self.reach {
            Reach::Own => cells.start.saturating_sub(first).clamp(start, end),
            Reach::Pass | Reach::Before => start,
        };
        let to = match self.window {
            Some(w) => w.end(cells.end).saturating_sub(first).clamp(from, end),
            None => end,
        };
        (from - start) * rows.shared..(to - start) * rows.shared
    }

    /// Scores of a row, of token `t` and a query head, to probabilities.
    fn probabilities(&self, rows: &HeadRows<'_, '_>, (t, head): (usize, usize), scores: &mut [f32]) {
        let (visible, begin) = (self.visible(rows.part, t), rows.cells.start);
        let (visible, position) = (visible.start - begin..visible.end - begin, rows.part.first() + t);
        let placement = rows.part.seq.placement();
        match self.rules {
            Some(rules) => {
                let at = (head, position, begin);
                rules.probabilities(self.isa, scores, visible, self.scale, at, placement);
            }
            None => in_cells(scores, visible, begin, placement, |scores, visible| {
                soft_max(self.isa, scores, visible, self.scale);
            }),
        }
    }

    /// Sums of `lines` of the outputs of all rows, `[rows][8 * lines]`. `buffer` holds [`CHUNK`] coefficients per row.
    fn outputs(
        &self,
        rows: &HeadRows<'_, '_>,
        probabilities: &[f32],
        lines: Range<usize>,
        buffer: &mut [f64],
        sums: &mut [f64],
    ) {
        sums.fill(0.0);
        let (lanes, width) = (lines.len() * LINE, rows.cells.len());
        let at_once = halves::rows_at_once(self.isa);
        let positions = rows.part.seq.layout().positions;
        let mut end = rows.cells.start;
        while end < rows.cells.end {
            // A chunk is of one page, whose values are in sequence.
            let begin = end;
            let page_end = (begin / positions + 1) * positions;
            end = rows.cells.end.min(begin + CHUNK).min(page_end);
            let chunk = begin..end;
            let seen = self.seeing(rows, chunk.clone());
            for row in seen.clone() {
                let at = row * width + begin - rows.cells.start;
                let p = &probabilities[at..][..chunk.len()];
                halves::coefficients(self.isa, p, &mut buffer[row * CHUNK..][..chunk.len()]);
            }
            // Cells of the chunk that a row sees.
            let steps = |row: usize| {
                let visible = self.visible(rows.part, rows.tokens.start + row / rows.shared);
                visible.start.max(begin) - begin..visible.end.min(chunk.end) - begin
            };
            let quads = AT_ONCE[usize::from(seen.len() > at_once)];
            let (page, tile) = rows.tile(begin / TILE);
            let values = page.values(tile, lines.clone(), quads);
            let form = |step: usize| page.form(tile + step / TILE);
            let tiles = (0..chunk.len()).step_by(TILE);
            if tiles.clone().any(|step| form(step) == F16Encoding::Special) {
                for row in seen.clone() {
                    let p = &buffer[row * CHUNK..][..CHUNK];
                    let sums = &mut sums[row * lanes..][..lanes];
                    halves::accumulate_special(values, form, steps(row), p, sums);
                }
                continue;
            }
            for step in tiles.filter(|&step| form(step) == F16Encoding::Plain) {
                for row in seen.clone() {
                    let p = &mut buffer[row * CHUNK + step..][..TILE];
                    p.iter_mut().for_each(|p| *p *= f64::from(PLAIN));
                }
            }
            let coefs = Coefficients { data: &buffer[seen.start * CHUNK..], stride: CHUNK, rows: seen.len() };
            let of_row = |row: usize| steps(seen.start + row);
            let sums = &mut sums[seen.start * lanes..];
            halves::accumulate(self.isa, values, &of_row, coefs, sums, lanes);
        }
    }
}
