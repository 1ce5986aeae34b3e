//! A page, and where in it each head's keys and values are.

use std::io::{self, Read, Write};
use std::ops::Range;

use super::TILE;
use super::types::{CacheTypes, bytes};
use crate::kernels::halves::{self, BLOCK, Form, LINE, Line, Lines, STEPS, Tiles};

/// Words of positions of a tile.
pub(super) const QUADS: usize = TILE / STEPS;

/// Bytes of a page that are not too much to be half empty at the end of every sequence.
const MOST_BYTES: usize = 20 << 20;
/// Positions of a page where that is not exceeded: what attention turns into coefficients at a time.
const MOST_POSITIONS: usize = 128;

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
/// Keys and values of other types have the layout of [`super::encoded`] within a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLayout {
    /// Layers that attend, and whose keys and values are here.
    pub n_layer: usize,
    /// Layers whose keys and values a device keeps under the numbers of the pages.
    pub elsewhere: usize,
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
    /// True if keys and values of quantized types are rotated: see [`super::rotate`].
    pub turned: bool,
    /// Numbers of the recurrent state that a sequence has beside its pages; 0 where no layer has one.
    pub state: usize,
}

impl PageLayout {
    /// Pages of 128 positions, or fewer where these would take more than 20 MB, for heads with keys of `key` and values
    /// of `value` elements.
    pub fn new(n_layer: usize, n_head: usize, [key, value]: [usize; 2]) -> PageLayout {
        let layout = PageLayout {
            n_layer,
            elsewhere: 0,
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
        let layout = PageLayout { types, turned, ..self };
        layout.fitted()
    }

    /// The same where a device keeps the last `layers` of the layers.
    pub fn with_elsewhere(self, layers: usize) -> PageLayout {
        let all = self.n_layer + self.elsewhere;
        let elsewhere = layers.min(all);
        PageLayout { n_layer: all - elsewhere, elsewhere, ..self }
    }

    fn fitted(self) -> PageLayout {
        let mut layout = PageLayout { positions: MOST_POSITIONS, ..self };
        while layout.positions > TILE && layout.bytes() > MOST_BYTES {
            layout.positions /= 2;
        }
        layout
    }

    /// The same for sequences with a recurrent state of `numbers` f32 numbers.
    pub fn with_state(self, numbers: usize) -> PageLayout {
        PageLayout { state: numbers, ..self }
    }

    /// Bytes of a page, those on a device included; one of a model without attention counts as a line, so that budgets
    /// of bytes have pages for it.
    pub fn bytes(&self) -> usize {
        let here = self.lines() * size_of::<Line>() + self.encoded_bytes();
        let head = self.positions * (self.head_dim + self.value_dim) * size_of::<u16>();
        let bytes = here + self.elsewhere * self.n_head * head;
        bytes.max(size_of::<Line>())
    }

    /// True if keys and values are rows of blocks instead of words of f16.
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

    /// Where the first `positions` of a page stand among its lines, head by head: keys and then values, in whole tiles,
    /// the last of which may hold more than is wanted.
    fn line_spans(&self, positions: usize) -> impl Iterator<Item = [Range<usize>; 2]> + use<> {
        let tiles = positions.div_ceil(TILE);
        let heads = match self.is_encoded() {
            true => 0,
            false => self.n_layer * self.n_head,
        };
        let (key, value) = (tiles * self.key_tile(), tiles * self.value_tile());
        let values = self.tiles() * self.key_tile();
        spans(heads, self.head_lines(), values, key, value)
    }

    /// The same among the bytes of an encoded page.
    fn byte_spans(&self, positions: usize) -> impl Iterator<Item = [Range<usize>; 2]> + use<> {
        let heads = match self.is_encoded() {
            true => self.n_layer * self.n_head,
            false => 0,
        };
        let key = positions * self.key_bytes();
        let value = positions * self.value_bytes();
        let values = self.positions * self.key_bytes();
        spans(heads, self.head_bytes(), values, key, value)
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

/// The memory of a page, which outlives the page.
pub(super) struct Memory {
    lines: Lines,
    /// Encoded keys and values, instead of lines.
    encoded: Vec<u8>,
    /// Arrangement of the f16 keys and values in each tile, `[layer][head][tile]`.
    forms: Box<[Form]>,
}

impl Memory {
    pub fn new(layout: &PageLayout) -> Memory {
        let tiles = layout.n_layer * layout.n_head * layout.tiles();
        Memory {
            lines: Lines::new(layout.lines()),
            encoded: vec![0; layout.encoded_bytes()],
            forms: vec![Form::Normalized; tiles].into(),
        }
    }

    /// Keys and values of one head of a layer.
    pub fn head(&self, layout: &PageLayout, layer: usize, head: usize) -> HeadPage<'_> {
        let no = layer * layout.n_head + head;
        let lines = &self.lines[no * layout.head_lines()..][..layout.head_lines()];
        let (keys, values) = lines.split_at(layout.tiles() * layout.key_tile());
        HeadPage { layout: *layout, keys, values, forms: &self.forms[no * layout.tiles()..][..layout.tiles()] }
    }

    /// Lines of all heads of a layer, and the forms of their tiles.
    pub fn layer_mut(&mut self, layout: &PageLayout, layer: usize) -> (&mut [Line], &mut [Form]) {
        let lines = layout.n_head * layout.head_lines();
        let tiles = layout.n_head * layout.tiles();
        (&mut self.lines[layer * lines..][..lines], &mut self.forms[layer * tiles..][..tiles])
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
        for span in layout.line_spans(positions).flatten() {
            self.lines[span.clone()].copy_from_slice(&other.lines[span]);
        }
        for span in layout.byte_spans(positions).flatten() {
            self.encoded[span.clone()].copy_from_slice(&other.encoded[span]);
        }
        self.forms.copy_from_slice(&other.forms);
    }

    /// Writes the first `positions` in whole tiles, as plain half floats; [`super::saved`] has the order of the bytes.
    pub fn write(&self, layout: &PageLayout, positions: usize, out: &mut dyn Write) -> io::Result<()> {
        let (mut bytes, mut plain) = (Vec::new(), Vec::new());
        let forms = self.forms.chunks(layout.tiles());
        for (spans, forms) in layout.line_spans(positions).zip(forms) {
            for (span, tile) in spans.into_iter().zip([layout.key_tile(), layout.value_tile()]) {
                bytes.clear();
                for (lines, &form) in self.lines[span].chunks_exact(tile).zip(forms) {
                    plain.clear();
                    plain.extend_from_slice(lines);
                    halves::change_form(&mut plain, form, Form::Special);
                    let words = plain.iter().flat_map(|line| line.0);
                    words.for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
                }
                out.write_all(&bytes)?;
            }
        }
        for span in layout.byte_spans(positions).flatten() {
            out.write_all(&self.encoded[span])?;
        }
        Ok(())
    }

    /// Reads what [`Memory::write`] wrote, and finds the form of each tile.
    pub fn read(&mut self, layout: &PageLayout, positions: usize, from: &mut dyn Read) -> io::Result<()> {
        let forms = self.forms.chunks_mut(layout.tiles());
        for (spans, forms) in layout.line_spans(positions).zip(forms) {
            for span in spans.clone() {
                read_lines(&mut self.lines[span], from)?;
            }
            let [keys, values] = spans;
            let keys = keys.step_by(layout.key_tile());
            let values = values.step_by(layout.value_tile());
            for ((key, value), form) in keys.zip(values).zip(forms) {
                let tile = [key..key + layout.key_tile(), value..value + layout.value_tile()];
                let of = |span: &Range<usize>| halves::form_of_lines(&self.lines[span.clone()]);
                *form = of(&tile[0]).max(of(&tile[1]));
                for span in tile {
                    halves::change_form(&mut self.lines[span], Form::Special, *form);
                }
            }
        }
        for span in layout.byte_spans(positions).flatten() {
            from.read_exact(&mut self.encoded[span])?;
        }
        Ok(())
    }
}

/// Fills lines with little-endian words.
fn read_lines(lines: &mut [Line], from: &mut dyn Read) -> io::Result<()> {
    let mut bytes = [0; size_of::<Line>()];
    for line in lines {
        from.read_exact(&mut bytes)?;
        let words = bytes.as_chunks::<8>().0;
        for (word, bytes) in line.0.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
    Ok(())
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
    forms: &'a [Form],
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

    /// Arrangement of the f16 numbers of a tile.
    pub fn form(self, tile: usize) -> Form {
        self.forms[tile]
    }
}
