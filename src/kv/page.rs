//! A page, and where in it each head's keys and values are.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::TILE;
use super::types::{CacheTypes, bytes};
use crate::kernels::halves::{BLOCK, LINE, Line, Lines, STEPS, Tiles};

/// Words of positions of a tile.
pub(super) const QUADS: usize = TILE / STEPS;

/// Bytes of a page that are not too much to be half empty at the end of every sequence.
const MOST_BYTES: usize = 20 << 20;
/// Positions of a page where that is not exceeded: what attention turns into coefficients at a time.
const MOST_POSITIONS: usize = 128;

/// What the pages of a model look like.
///
/// ```text
/// page    [layer]
/// layer   [KV head]
/// head    keys [tile], values [tile]
/// keys    [head elements / 4][32 positions]        a word is four elements of a position
/// values  [head elements / 32][8][32 elements]     a word is four positions of an element
/// ```
///
/// Keys and values of other types have the layout of [`super::encoded`] within a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLayout {
    /// Layers that attend.
    pub n_layer: usize,
    /// KV heads of a layer.
    pub n_head: usize,
    /// Elements of a key, and of a query head.
    pub head_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// Positions of a page, whole tiles.
    pub positions: usize,
    /// The types of keys and values.
    pub types: CacheTypes,
    /// Whether keys and values of quantized types are turned: see [`super::rotate`].
    pub turned: bool,
    /// Numbers of the recurrent state that a sequence has beside its pages; 0 where no layer has one.
    pub state: usize,
}

impl PageLayout {
    /// Pages of 128 positions, or fewer where these would take more than 20 MB, for keys and values of so many elements.
    pub fn new(n_layer: usize, n_head: usize, [key, value]: [usize; 2]) -> PageLayout {
        let layout = PageLayout {
            n_layer,
            n_head,
            head_dim: key,
            value_dim: value,
            positions: MOST_POSITIONS,
            types: CacheTypes::HALVES,
            turned: false,
            state: 0,
        };
        layout.fitted()
    }

    /// The same for keys and values of other types; quantized ones are `turned` before.
    pub fn with_types(self, types: CacheTypes, turned: bool) -> PageLayout {
        let layout = PageLayout {
            types,
            turned,
            ..self
        };
        layout.fitted()
    }

    fn fitted(self) -> PageLayout {
        let mut layout = PageLayout {
            positions: MOST_POSITIONS,
            ..self
        };
        while layout.positions > TILE && layout.bytes() > MOST_BYTES {
            layout.positions /= 2;
        }
        layout
    }

    /// The same for sequences with a recurrent state of so many numbers.
    pub fn with_state(self, numbers: usize) -> PageLayout {
        PageLayout {
            state: numbers,
            ..self
        }
    }

    /// Bytes of a page; one of a model without attention counts as a line, so that budgets of bytes have pages for it.
    pub fn bytes(&self) -> usize {
        let bytes = self.lines() * size_of::<Line>() + self.encoded_bytes();
        bytes.max(size_of::<Line>())
    }

    /// Whether keys and values are rows of blocks instead of words of half floats.
    pub fn is_encoded(&self) -> bool {
        self.types != CacheTypes::HALVES
    }

    /// Bytes of an encoded key.
    pub fn key_bytes(&self) -> usize {
        bytes(self.types.keys, self.head_dim)
    }

    /// Bytes of an encoded value.
    pub fn value_bytes(&self) -> usize {
        bytes(self.types.values, self.value_dim)
    }

    /// Bytes of a head's encoded keys and values.
    pub(super) fn head_bytes(&self) -> usize {
        self.positions * (self.key_bytes() + self.value_bytes())
    }

    fn encoded_bytes(&self) -> usize {
        match self.is_encoded() {
            true => self.n_layer * self.n_head * self.head_bytes(),
            false => 0,
        }
    }

    /// Tiles of a page.
    pub fn tiles(&self) -> usize {
        self.positions / TILE
    }

    /// Words of four elements of one key; what a head size lacks is zero.
    pub(super) fn key_quads(&self) -> usize {
        self.head_dim.div_ceil(STEPS)
    }

    /// Lines across the elements of a value; what a head size lacks is zero.
    pub(super) fn value_lines(&self) -> usize {
        self.value_dim.div_ceil(LINE)
    }

    /// Lines of the keys of a tile.
    pub(super) fn key_tile(&self) -> usize {
        self.key_quads() * BLOCK
    }

    /// Lines of the values of a tile.
    pub(super) fn value_tile(&self) -> usize {
        QUADS * self.value_lines()
    }

    /// Lines of a head's keys and values.
    pub(super) fn head_lines(&self) -> usize {
        self.tiles() * (self.key_tile() + self.value_tile())
    }

    fn lines(&self) -> usize {
        match self.is_encoded() {
            true => 0,
            false => self.n_layer * self.n_head * self.head_lines(),
        }
    }
}

/// The memory of a page, which outlives the page.
pub(super) struct Memory {
    lines: Lines,
    /// What is encoded, instead of lines.
    encoded: Vec<u8>,
    /// Tiles that hold an infinity or a NaN, `[layer][head][tile]`.
    special: Box<[AtomicBool]>,
}

impl Memory {
    pub fn new(layout: &PageLayout) -> Memory {
        let tiles = layout.n_layer * layout.n_head * layout.tiles();
        Memory {
            lines: Lines::new(layout.lines()),
            encoded: vec![0; layout.encoded_bytes()],
            special: (0..tiles).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Keys and values of one head of a layer.
    pub fn head(&self, layout: &PageLayout, layer: usize, head: usize) -> HeadPage<'_> {
        let no = layer * layout.n_head + head;
        let lines = &self.lines[no * layout.head_lines()..][..layout.head_lines()];
        let (keys, values) = lines.split_at(layout.tiles() * layout.key_tile());
        HeadPage {
            layout: *layout,
            keys,
            values,
            special: &self.special[no * layout.tiles()..][..layout.tiles()],
        }
    }

    /// Lines of all heads of a layer, and the flags of their tiles.
    pub fn layer_mut(&mut self, layout: &PageLayout, layer: usize) -> (&mut [Line], &[AtomicBool]) {
        let lines = layout.n_head * layout.head_lines();
        let tiles = layout.n_head * layout.tiles();
        (
            &mut self.lines[layer * lines..][..lines],
            &self.special[layer * tiles..][..tiles],
        )
    }

    /// Encoded keys and values of one head of a layer.
    pub fn encoded(&self, layout: &PageLayout, layer: usize, head: usize) -> EncodedHead<'_> {
        let no = layer * layout.n_head + head;
        let bytes = &self.encoded[no * layout.head_bytes()..][..layout.head_bytes()];
        let (keys, values) = bytes.split_at(layout.positions * layout.key_bytes());
        EncodedHead { keys, values }
    }

    /// The bytes of all heads of a layer.
    pub fn encoded_mut(&mut self, layout: &PageLayout, layer: usize) -> &mut [u8] {
        let bytes = layout.n_head * layout.head_bytes();
        &mut self.encoded[layer * bytes..][..bytes]
    }

    /// Takes over the first `positions` of `other`: whole tiles, the last of which may hold more than is wanted.
    pub fn copy_beginning(&mut self, layout: &PageLayout, other: &Memory, positions: usize) {
        let tiles = positions.div_ceil(TILE);
        let values = layout.tiles() * layout.key_tile();
        let (key, value) = (tiles * layout.key_tile(), tiles * layout.value_tile());
        let heads = self.lines.chunks_exact_mut(layout.head_lines());
        for (to, from) in heads.zip(other.lines.chunks_exact(layout.head_lines())) {
            to[..key].copy_from_slice(&from[..key]);
            to[values..][..value].copy_from_slice(&from[values..][..value]);
        }
        let (key, value) = (
            positions * layout.key_bytes(),
            positions * layout.value_bytes(),
        );
        let values = layout.positions * layout.key_bytes();
        let heads = self.encoded.chunks_exact_mut(layout.head_bytes());
        for (to, from) in heads.zip(other.encoded.chunks_exact(layout.head_bytes())) {
            to[..key].copy_from_slice(&from[..key]);
            to[values..][..value].copy_from_slice(&from[values..][..value]);
        }
        for (to, from) in self.special.iter().zip(&other.special) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Keys and values of one head in one page, encoded.
#[derive(Clone, Copy)]
pub struct EncodedHead<'a> {
    /// Rows of keys, one per position.
    pub keys: &'a [u8],
    /// Rows of values, one per position.
    pub values: &'a [u8],
}

/// Keys and values of one KV head in one page.
#[derive(Clone, Copy)]
pub struct HeadPage<'a> {
    layout: PageLayout,
    keys: &'a [Line],
    values: &'a [Line],
    special: &'a [AtomicBool],
}

impl<'a> HeadPage<'a> {
    /// Keys of a tile of the page, one block of words of four elements.
    pub fn keys(self, tile: usize) -> &'a [Line] {
        let lines = self.layout.key_tile();
        &self.keys[tile * lines..][..lines]
    }

    /// The `wanted` lines of values from a tile of the page to its end; `at_once` is passed on.
    pub fn values(self, tile: usize, wanted: Range<usize>, at_once: usize) -> Tiles<'a> {
        Tiles {
            words: &self.values[tile * self.layout.value_tile()..],
            lines: self.layout.value_lines(),
            wanted: (wanted.start, wanted.end),
            quads: QUADS,
            at_once,
        }
    }

    /// Whether a tile needs the functions for infinities and NaN.
    pub fn is_special(self, tile: usize) -> bool {
        self.special[tile].load(Ordering::Relaxed)
    }
}
