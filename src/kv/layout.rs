//! Where the keys and values of every layer are in a page.

use std::ops::Range;

use super::TILE;
use super::types::{CacheTypes, bytes};
use crate::kernels::halves::{BLOCK, LINE, Line, STEPS};

/// Words of positions of a tile.
pub(super) const QUADS: usize = TILE / STEPS;

/// Bytes of a page that are not too much to be half empty at the end of every sequence.
const MOST_BYTES: usize = 20 << 20;
/// Positions of a page where that is not exceeded: what attention turns into coefficients at a time.
const MOST_POSITIONS: usize = 128;

/// The heads of a layer whose keys and values are cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvHeads {
    /// Number of heads.
    pub count: usize,
    /// Elements of a key, and of a query head.
    pub key: usize,
    /// Elements of a value.
    pub value: usize,
}

/// Layout of the KV cache's pages of a model.
///
/// ```text
/// page    [layer]
/// layer   [KV head]
/// head    keys [tile], values [tile]
/// keys    [head elements / 4][32 positions]        a word is four elements of a position
/// values  [head elements / 32][8][32 elements]     a word is four positions of an element
/// ```
///
/// Keys and values of other types have the layout of `super::encoded` within a layer. Layers may have heads of
/// different numbers and sizes; each has the room that its own take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageLayout {
    /// Layers that attend, in order; those whose keys and values are elsewhere stand last.
    layers: Vec<Layer>,
    /// Layers whose keys and values a device keeps under the numbers of the pages.
    pub elsewhere: usize,
    /// Positions of a page, whole tiles.
    pub positions: usize,
    /// The types of keys and values.
    pub types: CacheTypes,
    /// True if keys and values of quantized types are rotated: see `super::rotation`.
    pub turned: [bool; 2],
    /// Numbers of the recurrent state that a sequence has beside its pages; 0 where no layer has one.
    pub state: usize,
    /// The last of these numbers, which a device keeps.
    pub state_elsewhere: usize,
}

/// A layer, and the layers before it in a page of one tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layer {
    heads: KvHeads,
    before: Before,
}

/// The heads of some layers, the lines of a tile of them, and the bytes of a position of them in encoded pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Before {
    heads: usize,
    lines: usize,
    bytes: usize,
}

impl Before {
    /// Totals with one more layer.
    fn and(self, heads: KvHeads, types: CacheTypes) -> Before {
        Before {
            heads: self.heads + heads.count,
            lines: self.lines + heads.tile(),
            bytes: self.bytes + heads.position(types),
        }
    }
}

impl KvHeads {
    /// Words of four elements of one key; what a head size lacks is zero.
    fn key_quads(self) -> usize {
        self.key.div_ceil(STEPS)
    }

    /// Lines across the elements of a value; what a head size lacks is zero.
    fn value_lines(self) -> usize {
        self.value.div_ceil(LINE)
    }

    /// Lines of the keys of a tile.
    fn key_tile(self) -> usize {
        self.key_quads() * BLOCK
    }

    /// Lines of the values of a tile.
    fn value_tile(self) -> usize {
        QUADS * self.value_lines()
    }

    /// Lines of keys and values of a tile of all heads.
    fn tile(self) -> usize {
        self.count * (self.key_tile() + self.value_tile())
    }

    /// Bytes of a position of all heads in an encoded page; 0 where pages are not.
    fn position(self, types: CacheTypes) -> usize {
        match types.is_encoded() {
            true => self.count * (bytes(types.keys, self.key) + bytes(types.values, self.value)),
            false => 0,
        }
    }
}

impl PageLayout {
    /// Pages of 128 positions, or fewer where these would take more than 20 MB, for `n_layer` layers of `n_head` heads
    /// with keys of `key` and values of `value` elements.
    pub fn new(n_layer: usize, n_head: usize, [key, value]: [usize; 2]) -> PageLayout {
        PageLayout::of_layers((0..n_layer).map(|_| KvHeads { count: n_head, key, value }))
    }

    /// The same for layers with these heads.
    pub fn of_layers(heads: impl Iterator<Item = KvHeads>) -> PageLayout {
        let types = CacheTypes::HALVES;
        let layers = placed(heads, types);
        let layout = PageLayout {
            layers,
            elsewhere: 0,
            positions: MOST_POSITIONS,
            types,
            turned: [false; 2],
            state: 0,
            state_elsewhere: 0,
        };
        layout.fitted()
    }

    /// The same for keys and values of other types; quantized ones are `turned` before, keys, values or both.
    pub fn with_types(self, types: CacheTypes, turned: [bool; 2]) -> PageLayout {
        let layout = PageLayout { layers: placed(self.heads(), types), types, turned, ..self };
        layout.fitted()
    }

    /// The same where a device keeps the last `layers` of the layers.
    pub fn with_elsewhere(self, layers: usize) -> PageLayout {
        PageLayout { elsewhere: layers.min(self.layers.len()), ..self }
    }

    /// The layers that a device keeps as a layout of their own, all of which is here.
    pub(super) fn of_elsewhere(&self) -> PageLayout {
        let layers = placed(self.heads().skip(self.here()), self.types);
        PageLayout { layers, elsewhere: 0, state: 0, state_elsewhere: 0, ..self.clone() }
    }

    /// The same with pages of this many positions, whole tiles.
    pub fn with_positions(self, positions: usize) -> PageLayout {
        PageLayout { positions, ..self }
    }

    fn fitted(self) -> PageLayout {
        let mut layout = self.with_positions(MOST_POSITIONS);
        while layout.positions > TILE && layout.bytes() > MOST_BYTES {
            layout.positions /= 2;
        }
        layout
    }

    /// The same for sequences with a recurrent state of `numbers` f32 numbers.
    pub fn with_state(self, numbers: usize) -> PageLayout {
        PageLayout { state: numbers, ..self }
    }

    /// The same where a device keeps the last `numbers` of the state's.
    pub fn with_state_elsewhere(self, numbers: usize) -> PageLayout {
        PageLayout { state_elsewhere: numbers.min(self.state), ..self }
    }

    /// Numbers of the state that are here.
    pub fn state_here(&self) -> usize {
        self.state - self.state_elsewhere
    }

    /// The heads of every layer, those that are elsewhere last.
    pub fn heads(&self) -> impl Iterator<Item = KvHeads> {
        self.layers.iter().map(|layer| layer.heads)
    }

    /// Layers whose keys and values are here.
    pub(super) fn here(&self) -> usize {
        self.layers.len() - self.elsewhere
    }

    /// Layout of one layer.
    pub fn layer(&self, layer: usize) -> LayerLayout {
        let KvHeads { count, key, value } = self.layers[layer].heads;
        let PageLayout { positions, types, turned, .. } = *self;
        LayerLayout { n_head: count, head_dim: key, value_dim: value, positions, types, turned }
    }

    /// The heads and lines before a layer; before the first that is elsewhere, all of a page.
    fn before(&self, layer: usize) -> Before {
        match (self.layers.get(layer), self.layers.last()) {
            (Some(layer), _) => layer.before,
            (None, Some(Layer { heads, before })) => before.and(*heads, self.types),
            (None, None) => Before::default(),
        }
    }

    /// Bytes of a page, those on a device included; one of a model without attention counts as a line, so that budgets
    /// of bytes have pages for it.
    pub fn bytes(&self) -> usize {
        let here = self.lines() * size_of::<Line>() + self.encoded_bytes();
        let elsewhere = self.heads().skip(self.here());
        let position =
            |heads: KvHeads| heads.count * (bytes(self.types.keys, heads.key) + bytes(self.types.values, heads.value));
        let elsewhere: usize = elsewhere.map(position).sum();
        let bytes = here + elsewhere * self.positions;
        bytes.max(size_of::<Line>())
    }

    /// Tiles of a page.
    pub fn tiles(&self) -> usize {
        self.positions / TILE
    }

    /// Lines of a page.
    pub(super) fn lines(&self) -> usize {
        match self.types.is_encoded() {
            true => 0,
            false => self.before(self.here()).lines * self.tiles(),
        }
    }

    /// Bytes of an encoded page.
    pub(super) fn encoded_bytes(&self) -> usize {
        self.before(self.here()).bytes * self.positions
    }

    /// Tiles of all heads of a page.
    pub(super) fn forms(&self) -> usize {
        self.before(self.here()).heads * self.tiles()
    }

    /// The lines of a layer in a page.
    pub(super) fn lines_of(&self, layer: usize) -> Range<usize> {
        let Layer { heads, before } = self.layers[layer];
        let tiles = self.tiles();
        before.lines * tiles..(before.lines + heads.tile()) * tiles
    }

    /// The tiles of a layer's heads among those of a page.
    pub(super) fn forms_of(&self, layer: usize) -> Range<usize> {
        let Layer { heads, before } = self.layers[layer];
        let tiles = self.tiles();
        before.heads * tiles..(before.heads + heads.count) * tiles
    }

    /// The bytes of a layer in an encoded page.
    pub(super) fn bytes_of(&self, layer: usize) -> Range<usize> {
        let Layer { heads, before } = self.layers[layer];
        before.bytes * self.positions..before.and(heads, self.types).bytes * self.positions
    }
}

/// Layers with these heads, each with those before it.
fn placed(heads: impl Iterator<Item = KvHeads>, types: CacheTypes) -> Vec<Layer> {
    let mut before = Before::default();
    let layers = heads.map(|heads| {
        let layer = Layer { heads, before };
        before = before.and(heads, types);
        layer
    });
    layers.collect()
}

/// Layout of the keys and values of one layer in a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayerLayout {
    /// KV heads.
    pub n_head: usize,
    /// Elements of a key, and of a query head.
    pub head_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// Positions of a page, whole tiles.
    pub positions: usize,
    /// The types of keys and values.
    pub types: CacheTypes,
    /// True of keys and of values that are rotated where their type is a quantized one.
    pub turned: [bool; 2],
}

impl LayerLayout {
    fn heads(&self) -> KvHeads {
        KvHeads { count: self.n_head, key: self.head_dim, value: self.value_dim }
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

    /// Tiles of a page.
    pub fn tiles(&self) -> usize {
        self.positions / TILE
    }

    /// Lines across the elements of a value.
    pub(super) fn value_lines(&self) -> usize {
        self.heads().value_lines()
    }

    /// Lines of the keys of a tile.
    pub(super) fn key_tile(&self) -> usize {
        self.heads().key_tile()
    }

    /// Lines of the values of a tile.
    pub(super) fn value_tile(&self) -> usize {
        self.heads().value_tile()
    }

    /// Lines of a head's keys and values.
    pub(super) fn head_lines(&self) -> usize {
        self.tiles() * (self.key_tile() + self.value_tile())
    }

    /// Where the first `positions` stand among a layer's lines, head by head: keys and then values, in whole tiles, the
    /// last of which may hold more than is wanted.
    pub(super) fn line_spans(&self, positions: usize) -> impl Iterator<Item = [Range<usize>; 2]> + use<> {
        let tiles = positions.div_ceil(TILE);
        let (key, value) = (tiles * self.key_tile(), tiles * self.value_tile());
        let values = self.tiles() * self.key_tile();
        spans(self.n_head, self.head_lines(), values, key, value)
    }

    /// The same among the bytes of an encoded layer.
    pub(super) fn byte_spans(&self, positions: usize) -> impl Iterator<Item = [Range<usize>; 2]> + use<> {
        let (key, value) = (positions * self.key_bytes(), positions * self.value_bytes());
        let values = self.positions * self.key_bytes();
        spans(self.n_head, self.head_bytes(), values, key, value)
    }
}

/// Spans within each of `heads` heads, which are `size` apart: the first `key` units, and the first `value` ones from
/// `values` on.
fn spans(
    heads: usize,
    size: usize,
    values: usize,
    key: usize,
    value: usize,
) -> impl Iterator<Item = [Range<usize>; 2]> {
    (0..heads).map(move |head| {
        let (keys, values) = (head * size, head * size + values);
        [keys..keys + key, values..values + value]
    })
}
