//! Rows of a matrix as the file has them, and the look-up of their codes.

use trine_formats::anyprec::{MAX_BITS, words};

use super::act::Arrangement;
#[cfg(any(test, target_arch = "x86_64"))]
use super::act::in_blocks;
use crate::sizes::{MAX_COLUMNS, size};

/// Consecutive rows of a matrix at one width.
#[derive(Clone, Copy)]
pub struct PlaneRows<'a> {
    /// Weights per row, at least one.
    pub columns: usize,
    /// Groups of columns with tables of their own; divides `columns`.
    pub groups: usize,
    /// One plane per bit of a code, the leading bit first: rows of [`words`] words of 64 bits.
    pub planes: &'a [&'a [u8]],
    /// The centroids in half precision, little-endian: `2^width` of each group of each row.
    pub lut: &'a [u8],
}

impl<'a> PlaneRows<'a> {
    /// Bits of a code.
    pub fn width(&self) -> usize {
        self.planes.len()
    }

    /// Blocks of 64 weights in a row, the last of which may be shorter.
    pub fn blocks(&self) -> usize {
        words(self.columns)
    }

    /// Bytes of the tables of a row.
    pub(crate) fn lut_bytes(&self) -> usize {
        (2 * self.groups) << self.width()
    }

    /// The bytes of row `i` of every plane, the leading bits first, and its tables.
    pub(crate) fn row(&self, i: usize) -> (impl Iterator<Item = &'a [u8]>, &'a [u8]) {
        let (bytes, lut) = (8 * self.blocks(), self.lut_bytes());
        let planes = self.planes.iter();
        (planes.map(move |p| &p[i * bytes..][..bytes]), &self.lut[i * lut..][..lut])
    }

    /// True if every group is whole blocks, which the vector kernels ask for.
    #[cfg(any(test, target_arch = "x86_64"))]
    pub(crate) fn in_blocks(&self) -> bool {
        in_blocks(self.columns, self.groups)
    }

    /// The number of rows, once all lengths are known to fit each other.
    ///
    /// # Panics
    /// When a length does not fit the others.
    pub(crate) fn check(&self, form: Arrangement, acts: &[u8], tokens: usize, out: &[f32]) -> usize {
        let rows = out.len().checked_div(tokens).unwrap_or(0);
        assert_eq!(out.len(), rows * tokens, "whole rows of {tokens} tokens");
        assert!(self.columns > 0 && self.groups > 0, "an empty row");
        assert!(self.columns <= MAX_COLUMNS, "{} columns", self.columns);
        assert!(self.columns.is_multiple_of(self.groups), "groups");
        let width = self.width();
        assert!(0 < width && width <= usize::from(MAX_BITS), "width {width}");
        for plane in self.planes {
            assert_eq!(plane.len(), size([rows, 8, self.blocks()]), "plane");
        }
        assert_eq!(self.lut.len(), size([rows, self.lut_bytes()]), "tables");
        assert_eq!(acts.len(), size([tokens, form.act_bytes(self.columns)]), "activations");
        assert!(acts.as_ptr().addr().is_multiple_of(64), "alignment");
        rows
    }
}

/// The weights of a row, looked up one by one: single precision, or 16-bit with the scale of the row.
pub(crate) struct Looked<'a> {
    codes: &'a [u8],
    group: usize,
    width: usize,
}

impl Looked<'_> {
    /// Where in the tables of its row each weight is.
    pub fn entries(&self) -> impl Iterator<Item = usize> {
        let codes = self.codes.chunks(self.group).enumerate();
        codes.flat_map(|(g, codes)| {
            let table = g << self.width;
            codes.iter().map(move |&c| table + usize::from(c))
        })
    }
}

impl PlaneRows<'_> {
    /// The codes of row `i`, put into `codes`, which has room for one per column.
    pub(crate) fn look_up<'c>(&self, i: usize, codes: &'c mut [u8]) -> Looked<'c> {
        let planes: Vec<&[u8]> = self.row(i).0.collect();
        trine_formats::anyprec::unpack_row(&planes, codes);
        Looked { codes, group: self.columns / self.groups, width: self.width() }
    }

    /// The centroids of row `i` in half precision.
    pub(crate) fn centroids(&self, i: usize) -> impl ExactSizeIterator<Item = u16> + Clone {
        let lut = self.row(i).1.as_chunks().0;
        lut.iter().map(|&c| u16::from_le_bytes(c))
    }
}
