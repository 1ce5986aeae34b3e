//! Pages of which a device keeps some layers, in the bytes of files: as pages of the processor alone have them.

use std::io::{self, Read, Write};
use std::sync::Arc;

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::TILE;
use super::budget::PagePool;
use super::layout::{LayerLayout, PageLayout};
use super::sequence::{Sequence, SequenceRows};
use super::store::store;
use crate::kernels::Isa;
use crate::kernels::halves::{BLOCK, LINE, STEPS};

/// One page of the layers that a device keeps, in this memory, where it has the bytes of files.
pub(super) struct Beside {
    sequence: Sequence,
    positions: usize,
}

impl Beside {
    /// The first `positions` of a page with nothing in them.
    pub fn new(layout: &PageLayout, positions: usize) -> Beside {
        let mut sequence = PagePool::new(layout.of_elsewhere(), 1).sequence();
        sequence.reserve(positions).expect("a page of its own");
        Beside { sequence, positions }
    }

    fn layers(&self) -> impl Iterator<Item = (usize, LayerLayout)> + use<> {
        let layout = self.sequence.layout().clone();
        (0..layout.heads().count()).map(move |layer| (layer, layout.layer(layer)))
    }

    /// Takes over what a device gave.
    ///
    /// # Errors
    /// Pages of another shape.
    pub fn fill(&mut self, cells: &[Vec<u8>]) -> io::Result<()> {
        let n = self.positions;
        let lengths = |(_, own): (usize, LayerLayout)| sizes(&own).map(|size| own.n_head * n * size);
        if cells.iter().map(Vec::len).ne(self.layers().flat_map(lengths)) {
            return Err(io::Error::other("a GPU has pages of another shape"));
        }
        for ((layer, own), cells) in self.layers().zip(cells.chunks_exact(2)) {
            if !own.types.is_encoded() {
                let [k, v] = [(&cells[0], own.head_dim), (&cells[1], own.value_dim)]
                    .map(|(cells, size)| by_position(cells, [own.n_head, n, size]));
                let mut parts = [SequenceRows { seq: &mut self.sequence, rows: 0..n }];
                store(Isa::detect(), layer, &mut parts, &k, &v);
                continue;
            }
            for (_, bytes) in self.sequence.writable_bytes(layer, 0..n) {
                for (head, spans) in own.byte_spans(n).enumerate() {
                    for (cells, span) in cells.iter().zip(spans) {
                        let size = span.len();
                        bytes[span].copy_from_slice(&cells[head * size..][..size]);
                    }
                }
            }
        }
        Ok(())
    }

    /// All cells, as a device takes them.
    pub fn cells(&self) -> Vec<Vec<u8>> {
        let n = self.positions;
        let mut all = Vec::new();
        for (layer, own) in self.layers() {
            let [mut keys, mut values] = [Vec::new(), Vec::new()];
            for head in 0..own.n_head {
                if own.types.is_encoded() {
                    let page = self.sequence.encoded(layer, 0, head);
                    keys.extend_from_slice(&page.keys[..n * own.key_bytes()]);
                    values.extend_from_slice(&page.values[..n * own.value_bytes()]);
                    continue;
                }
                for position in 0..n {
                    self.halves(layer, &own, head, position, [&mut keys, &mut values]);
                }
            }
            all.extend([keys, values]);
        }
        all
    }

    /// The key and the value of a position as half floats.
    fn halves(&self, layer: usize, own: &LayerLayout, head: usize, position: usize, to: [&mut Vec<u8>; 2]) {
        let (page, tile) = self.sequence.tile(layer, head, position / TILE);
        let (lines, form, lane) = (page.keys(tile), page.form(tile), position % TILE);
        let [keys, values] = to;
        for e in 0..own.head_dim {
            let word = lines[e / STEPS * BLOCK + lane / LINE].0[lane % LINE];
            let value = form.value((word >> (16 * (e % STEPS))) as u16);
            keys.extend(f32_to_f16(value).to_le_bytes());
        }
        let lines = page.values(tile, 0..own.value_dim.div_ceil(LINE), TILE / STEPS);
        for e in 0..own.value_dim {
            values.extend(f32_to_f16(lines.value(form, e, lane) as f32).to_le_bytes());
        }
    }

    /// Writes its positions.
    ///
    /// # Errors
    /// Write errors.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.sequence.pages[0].memory().write(self.sequence.layout(), self.positions, out)
    }

    /// Reads what [`Beside::write`] wrote.
    ///
    /// # Errors
    /// Read errors.
    pub fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let layout = self.sequence.layout().clone();
        let page = Arc::get_mut(&mut self.sequence.pages[0]).expect("a page of its own");
        page.memory_mut().read(&layout, self.positions, from)
    }
}

/// Bytes of a key and of a value.
fn sizes(own: &LayerLayout) -> [usize; 2] {
    match own.types.is_encoded() {
        true => [own.key_bytes(), own.value_bytes()],
        false => [own.head_dim, own.value_dim].map(|size| size * size_of::<u16>()),
    }
}

/// Half floats `[head][position][size]` as numbers `[position][head][size]`.
fn by_position(cells: &[u8], [heads, positions, size]: [usize; 3]) -> Vec<f32> {
    let mut all = vec![0.0; heads * positions * size];
    for (i, bytes) in cells.as_chunks::<2>().0.iter().enumerate() {
        let (head, position, e) = (i / (positions * size), i / size % positions, i % size);
        all[(position * heads + head) * size + e] = f16_to_f32(u16::from_le_bytes(*bytes));
    }
    all
}
