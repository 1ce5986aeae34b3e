//! Many rows of a task in tiles: scores and outputs as exact whole numbers, and in order what these leave open.

use crate::kernels::Isa;
use crate::kernels::halves::exact::{self, FROM, Outputs, Queries};
use crate::kernels::halves::{self, Coefficients, LINE, STEPS};
use crate::kv::{LayerLayout, TILE};
use crate::pool::Tile;

use super::rows::{Attention, CHUNK, HeadRows, Scratch, aligned, even};

/// Scores of one task: about half of the second-level cache, since all of its rows share what keys and values cost to
/// take apart.
const SCORES: usize = 1 << 18;
/// Rows of one task.
const ROWS: [usize; 2] = [64, 256];

const _: () = assert!(CHUNK <= exact::CELLS);

/// True if tiles compute a KV head with `rows` rows.
pub fn take(isa: Isa, layout: &LayerLayout, rows: usize) -> bool {
    rows >= FROM && exact::fits(isa, layout.head_dim, layout.value_dim)
}

/// Rows of a task, for `all` rows of a KV head that attend to `cells` cells.
pub fn rows(layout: &LayerLayout, all: usize, cells: usize) -> usize {
    let even = even(layout, all).next_multiple_of(FROM);
    (SCORES / cells).clamp(ROWS[0], ROWS[1]).min(even)
}

impl Attention<'_, '_> {
    /// [`Attention::block`] for rows that tiles take.
    pub(super) fn block_in_tiles(
        &self,
        rows: &HeadRows<'_, '_>,
        q: &[f32],
        mut tile: Tile<'_, f32>,
        scratch: &mut Scratch,
    ) {
        let layout = rows.layout();
        let (hd, vd, width) = (layout.head_dim, layout.value_dim, rows.cells.len());
        let n = tile.rows.len() * rows.shared;
        let tokens = tile.rows.clone();
        let query = |row: usize| {
            let t = tokens.start + row / rows.shared;
            let head = rows.kv_head * rows.shared + row % rows.shared;
            &q[(t * self.n_head + head) * hd..][..hd]
        };
        let queries = Queries::new(self.isa, hd, (0..n).map(query));
        let scores = aligned(&mut scratch.scores, n * width);
        self.scores_in_tiles(rows, queries, query, scores, &mut scratch.coefs);
        for (row, scores) in scores.chunks_exact_mut(width).enumerate() {
            let t = rows.tokens.start + row / rows.shared;
            let head = rows.kv_head * rows.shared + row % rows.shared;
            self.probabilities(rows, (t, head), scores);
        }
        let mut outputs = Outputs::new(self.isa, n, vd);
        let whole = self.outputs_in_tiles(rows, scores, &mut outputs);
        for row in 0..n {
            let out = &mut tile.row(row / rows.shared)[row % rows.shared * vd..][..vd];
            if whole && outputs.finish(row, out) {
                continue;
            }
            // The heads of a token together, as often as one of them is open; that is rare.
            let t = rows.tokens.start + row / rows.shared;
            let token = HeadRows { tokens: t..t + 1, cells: rows.cells.clone(), ..*rows };
            let lanes = vd.div_ceil(LINE) * LINE;
            let sums = aligned(&mut scratch.sums, rows.shared * lanes);
            let buffer = aligned(&mut scratch.probabilities, rows.shared * CHUNK);
            let scores = &scores[row / rows.shared * rows.shared * width..];
            self.outputs(&token, scores, 0..lanes / LINE, buffer, sums);
            let sums = &sums[row % rows.shared * lanes..];
            out.iter_mut().zip(sums).for_each(|(o, &s)| *o = s as f32);
        }
    }

    /// Scores of all rows, `[rows][cells]`; of tiles that a row does not see, anything.
    fn scores_in_tiles<'q>(
        &self,
        rows: &HeadRows<'_, '_>,
        mut queries: Queries,
        query: impl Fn(usize) -> &'q [f32],
        out: &mut [f32],
        coefs: &mut Vec<f64>,
    ) {
        let hd = rows.layout().head_dim;
        let (cells, width) = (rows.cells.clone(), rows.cells.len());
        let stored = self.stored(rows.part);
        let mut open = vec![false; out.len() / width];
        let mut there_are_coefs = false;
        for tile in cells.start / TILE..cells.end / TILE {
            let at = tile * TILE;
            let seen = self.seeing(rows, at..at + TILE);
            let there = stored.min(at + TILE) - at;
            let out = &mut out[at - cells.start..];
            let (page, tile) = rows.tile(tile);
            let keys = (page.keys(tile), page.form(tile));
            open.fill(false);
            queries.scores(keys, there, seen.clone(), (&mut *out, width), &mut open);
            // Neighbours of rows that see the keys were made with them, and do not matter.
            let mut end = seen.start;
            while let Some(first) = open[end..seen.end].iter().position(|open| *open) {
                let first = end + first;
                let more = open[first..seen.end].iter().position(|open| !*open);
                end = more.map_or(seen.end, |more| first + more);
                let data = aligned(coefs, open.len() * hd);
                if !there_are_coefs {
                    for (row, coefs) in data.chunks_exact_mut(hd).enumerate() {
                        halves::coefficients(self.isa, query(row), coefs);
                    }
                    there_are_coefs = true;
                }
                let coefs = Coefficients { data: &data[first * hd..], stride: hd, rows: end - first };
                let out = &mut out[first * width..];
                halves::dots(self.isa, keys, hd / STEPS, coefs, out, width);
            }
        }
    }

    /// Sums of all rows; false where some values are none for tiles.
    fn outputs_in_tiles(&self, rows: &HeadRows<'_, '_>, probabilities: &[f32], outputs: &mut Outputs) -> bool {
        let (cells, width) = (rows.cells.clone(), rows.cells.len());
        let layout = rows.layout();
        let lines = 0..layout.value_dim / LINE;
        let stored = self.stored(rows.part);
        let mut end = cells.start;
        while end < cells.end {
            // A chunk is of one page, whose values are in sequence.
            let begin = end;
            let page_end = (begin / layout.positions + 1) * layout.positions;
            end = cells.end.min(begin + CHUNK).min(page_end);
            let (page, tile) = rows.tile(begin / TILE);
            let values = page.values(tile, lines.clone(), CHUNK / STEPS);
            let tiles = (end - begin) / TILE;
            let mut forms = [halves::F16Encoding::Normalized; CHUNK / TILE];
            for (i, form) in forms[..tiles].iter_mut().enumerate() {
                *form = page.form(tile + i);
            }
            let seen = |row: usize| {
                let visible = self.visible(rows.part, rows.tokens.start + row / rows.shared);
                visible.end.clamp(begin, end) - begin
            };
            let there = stored.min(end) - begin;
            let probabilities = &probabilities[begin - cells.start..];
            let which = self.seeing(rows, begin..end);
            let forms = &forms[..tiles];
            if !outputs.add(values, forms, there, (probabilities, width), which, seen) {
                return false;
            }
        }
        true
    }
}
