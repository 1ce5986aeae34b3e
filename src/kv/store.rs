//! Keys and values of a pass into the pages of its sequences.

use std::ops::Range;

use super::TILE;
use super::encoded;
use super::layout::{LayerLayout, QUADS};
use super::sequence::SequenceRows;
use crate::kernels::Isa;
use crate::kernels::halves::{self, F16Encoding, Line};
use crate::pool;

/// Values that are stored by one thread rather than by several.
const SMALL: usize = 1 << 14;

/// Some heads of one page, and the rows of the pass that go there.
struct Strip<'a> {
    layout: LayerLayout,
    lines: &'a mut [Line],
    /// Arrangements of the tiles of these heads.
    forms: &'a mut [F16Encoding],
    first_head: usize,
    /// Positions in the page.
    positions: Range<usize>,
    /// Row of the pass that goes to the first of them.
    row: usize,
}

/// Stores the keys and values of a pass, `[rows][heads * elements]`, rounded to their types, in `layer` of all its
/// sequences. What stood at those positions and after is overwritten or forgotten.
pub fn store(isa: Isa, layer: usize, parts: &mut [SequenceRows<'_>], k: &[f32], v: &[f32]) {
    let Some(layout) = parts.first().map(|p| p.seq.layout().layer(layer)) else {
        return;
    };
    if layout.types.is_encoded() {
        return encoded::store(isa, &layout, layer, parts, (k, v));
    }
    let at_once = if k.len() < SMALL { layout.n_head } else { 1 };
    let mut strips = Vec::new();
    for part in parts {
        let mut row = part.rows.start;
        let positions = part.positions();
        for (positions, lines, forms) in part.seq.writable(layer, positions) {
            let heads = lines.chunks_mut(at_once * layout.head_lines());
            let forms = forms.chunks_mut(at_once * layout.tiles());
            for (i, (lines, forms)) in heads.zip(forms).enumerate() {
                strips.push(Strip { layout, lines, forms, first_head: i * at_once, positions: positions.clone(), row });
            }
            row += positions.len();
        }
    }
    if k.len() < SMALL {
        strips.iter_mut().for_each(|s| s.put(isa, k, v));
    } else {
        pool::chunks_mut(&mut strips, 1, |_, s| {
            s.iter_mut().for_each(|s| s.put(isa, k, v));
        });
    }
}

impl Strip<'_> {
    fn put(&mut self, isa: Isa, k: &[f32], v: &[f32]) {
        let layout = &self.layout;
        let (key_size, value_size) = (layout.head_dim, layout.value_dim);
        let (key_tile, value_tile) = (layout.key_tile(), layout.value_tile());
        let heads = self.lines.chunks_exact_mut(layout.head_lines());
        let heads = heads.zip(self.forms.chunks_exact_mut(layout.tiles()));
        for (i, (lines, forms)) in heads.enumerate() {
            let head = self.first_head + i;
            let (keys, values) = lines.split_at_mut(layout.tiles() * key_tile);
            for (position, row) in self.positions.clone().zip(self.row..) {
                let (tile, lane) = (position / TILE, position % TILE);
                let head = row * layout.n_head + head;
                let keys = &mut keys[tile * key_tile..][..key_tile];
                let values = &mut values[tile * value_tile..][..value_tile];
                let (k, v) = (&k[head * key_size..], &v[head * value_size..]);
                let (k, v) = (&k[..key_size], &v[..value_size]);
                let wanted = F16Encoding::of(isa, k).max(F16Encoding::of(isa, v));
                let form = &mut forms[tile];
                if lane == 0 {
                    // The first position of a tile forgets what was there before.
                    *form = wanted;
                } else if *form < wanted {
                    halves::change_form(keys, *form, wanted);
                    halves::change_form(values, *form, wanted);
                    *form = wanted;
                }
                halves::put_lane(isa, k, keys, lane, *form);
                halves::put_step(isa, v, values, QUADS, lane, *form);
            }
        }
    }
}
