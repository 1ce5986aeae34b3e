//! The memory of a page, and what each head has in it.

use std::io::{self, Read, Write};
use std::ops::Range;

use super::layout::{LayerLayout, PageLayout, QUADS};
use crate::kernels::halves::{self, F16Encoding, Line, Lines, Tiles};

/// The memory of a page, which outlives the page.
pub(super) struct Memory {
    lines: Lines,
    /// Encoded keys and values, instead of lines.
    encoded: Vec<u8>,
    /// Arrangement of the f16 keys and values in each tile, `[layer][head][tile]`.
    forms: Box<[F16Encoding]>,
}

impl Memory {
    pub fn new(layout: &PageLayout) -> Memory {
        Memory {
            lines: Lines::new(layout.lines()),
            encoded: vec![0; layout.encoded_bytes()],
            forms: vec![F16Encoding::Normalized; layout.forms()].into(),
        }
    }

    /// Keys and values of one head of a layer.
    pub fn head(&self, layout: &PageLayout, layer: usize, head: usize) -> HeadPage<'_> {
        let own = layout.layer(layer);
        let (size, tiles) = (own.head_lines(), own.tiles());
        let lines = &self.lines[layout.lines_of(layer).start + head * size..][..size];
        let (keys, values) = lines.split_at(tiles * own.key_tile());
        let forms = &self.forms[layout.forms_of(layer).start + head * tiles..][..tiles];
        HeadPage { layout: own, keys, values, forms }
    }

    /// Lines of all heads of a layer, and the forms of their tiles.
    pub fn layer_mut(&mut self, layout: &PageLayout, layer: usize) -> (&mut [Line], &mut [F16Encoding]) {
        (&mut self.lines[layout.lines_of(layer)], &mut self.forms[layout.forms_of(layer)])
    }

    /// Encoded keys and values of one head of a layer.
    pub fn encoded(&self, layout: &PageLayout, layer: usize, head: usize) -> EncodedHead<'_> {
        let own = layout.layer(layer);
        let size = own.head_bytes();
        let bytes = &self.encoded[layout.bytes_of(layer).start + head * size..][..size];
        let (keys, values) = bytes.split_at(own.positions * own.key_bytes());
        EncodedHead { keys, values }
    }

    /// The bytes of all heads of a layer.
    pub fn encoded_mut(&mut self, layout: &PageLayout, layer: usize) -> &mut [u8] {
        &mut self.encoded[layout.bytes_of(layer)]
    }

    /// Takes over the first `positions` of `other`: whole tiles, the last of which may hold more than is wanted.
    pub fn copy_beginning(&mut self, layout: &PageLayout, other: &Memory, positions: usize) {
        for layer in 0..layout.here() {
            let own = layout.layer(layer);
            if own.types.is_encoded() {
                let all = layout.bytes_of(layer);
                let (to, from) = (&mut self.encoded[all.clone()], &other.encoded[all]);
                own.byte_spans(positions).flatten().for_each(|span| to[span.clone()].copy_from_slice(&from[span]));
            } else {
                let all = layout.lines_of(layer);
                let (to, from) = (&mut self.lines[all.clone()], &other.lines[all]);
                own.line_spans(positions).flatten().for_each(|span| to[span.clone()].copy_from_slice(&from[span]));
            }
        }
        self.forms.copy_from_slice(&other.forms);
    }

    /// Writes the first `positions` in whole tiles, as plain half floats; [`super::saved`] has the order of the bytes.
    pub fn write(&self, layout: &PageLayout, positions: usize, out: &mut dyn Write) -> io::Result<()> {
        for layer in 0..layout.here() {
            let own = layout.layer(layer);
            if own.types.is_encoded() {
                let bytes = &self.encoded[layout.bytes_of(layer)];
                own.byte_spans(positions).flatten().try_for_each(|span| out.write_all(&bytes[span]))?;
                continue;
            }
            let (lines, forms) = (&self.lines[layout.lines_of(layer)], &self.forms[layout.forms_of(layer)]);
            write_layer(&own, positions, lines, forms, out)?;
        }
        Ok(())
    }

    /// Reads what [`Memory::write`] wrote, and finds the form of each tile.
    pub fn read(&mut self, layout: &PageLayout, positions: usize, from: &mut dyn Read) -> io::Result<()> {
        for layer in 0..layout.here() {
            let own = layout.layer(layer);
            if own.types.is_encoded() {
                let bytes = self.encoded_mut(layout, layer);
                own.byte_spans(positions).flatten().try_for_each(|span| from.read_exact(&mut bytes[span]))?;
                continue;
            }
            let (lines, forms) = self.layer_mut(layout, layer);
            read_layer(&own, positions, lines, forms, from)?;
        }
        Ok(())
    }
}

/// Writes the first `positions` of a layer as plain half floats.
fn write_layer(
    own: &LayerLayout,
    positions: usize,
    lines: &[Line],
    forms: &[F16Encoding],
    out: &mut dyn Write,
) -> io::Result<()> {
    let (mut bytes, mut plain) = (Vec::new(), Vec::new());
    for (spans, forms) in own.line_spans(positions).zip(forms.chunks(own.tiles())) {
        for (span, tile) in spans.into_iter().zip([own.key_tile(), own.value_tile()]) {
            bytes.clear();
            for (lines, &form) in lines[span].chunks_exact(tile).zip(forms) {
                plain.clear();
                plain.extend_from_slice(lines);
                halves::change_form(&mut plain, form, F16Encoding::Special);
                let words = plain.iter().flat_map(|line| line.0);
                words.for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            }
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}

/// Reads what [`write_layer`] wrote, and finds the form of each tile.
fn read_layer(
    own: &LayerLayout,
    positions: usize,
    lines: &mut [Line],
    forms: &mut [F16Encoding],
    from: &mut dyn Read,
) -> io::Result<()> {
    for (spans, forms) in own.line_spans(positions).zip(forms.chunks_mut(own.tiles())) {
        for span in spans.clone() {
            read_lines(&mut lines[span], from)?;
        }
        let [keys, values] = spans;
        let keys = keys.step_by(own.key_tile());
        let values = values.step_by(own.value_tile());
        for ((key, value), form) in keys.zip(values).zip(forms) {
            let tile = [key..key + own.key_tile(), value..value + own.value_tile()];
            let of = |span: &Range<usize>| halves::form_of_lines(&lines[span.clone()]);
            *form = of(&tile[0]).max(of(&tile[1]));
            for span in tile {
                halves::change_form(&mut lines[span], F16Encoding::Special, *form);
            }
        }
    }
    Ok(())
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
    layout: LayerLayout,
    keys: &'a [Line],
    values: &'a [Line],
    forms: &'a [F16Encoding],
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
    pub fn form(self, tile: usize) -> F16Encoding {
        self.forms[tile]
    }
}
