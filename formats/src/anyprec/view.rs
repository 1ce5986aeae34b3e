//! The bytes of a matrix at one width.

use std::ops::Range;

use super::planes::{unpack_row, words};
use crate::gguf::Blob;
use crate::types::num::f16_to_f32;

/// A matrix at one width, ready to be computed with. All lengths are those of the extents.
#[derive(Clone)]
pub struct ApView {
    /// Bits of a code.
    pub width: u8,
    /// Weights per row.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
    /// Groups of columns with codebooks of their own; divides `columns`.
    pub groups: usize,
    /// The planes, `width` of them with the leading bits first: rows of `words()` words of 64 bits.
    pub planes: Vec<Blob>,
    /// The centroids in half precision, little-endian: `2^width` of each group of each row.
    pub lut: Blob,
    /// Weights that are stored as they are.
    pub sparse: Option<SparseView>,
}

/// Weights that are stored as they are, row by row with ascending columns.
#[derive(Clone)]
pub struct SparseView {
    /// i32, little-endian: where the entries of each row begin, and the end; `rows + 1` of them.
    pub ptr: Blob,
    /// i32, little-endian: columns.
    pub col: Blob,
    /// Half precision, little-endian: weights.
    pub val: Blob,
}

fn ints(bytes: &[u8]) -> impl ExactSizeIterator<Item = i32> + Clone {
    bytes.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b))
}

fn halves(bytes: &[u8]) -> impl ExactSizeIterator<Item = u16> + Clone {
    bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b))
}

impl SparseView {
    /// Where the entries of each row begin, and the end.
    pub fn ptr(&self) -> impl ExactSizeIterator<Item = i32> + Clone {
        ints(&self.ptr)
    }

    /// The columns of all entries.
    pub fn col(&self) -> impl ExactSizeIterator<Item = i32> + Clone {
        ints(&self.col)
    }

    /// The weights of all entries.
    pub fn val(&self) -> impl ExactSizeIterator<Item = f32> + Clone {
        halves(&self.val).map(f16_to_f32)
    }

    /// The columns and weights of the entries `range`, all of which are there.
    pub fn entries(&self, range: Range<usize>) -> impl Iterator<Item = (usize, f32)> + Clone {
        let columns = ints(&self.col[4 * range.start..4 * range.end]);
        let weights = halves(&self.val[2 * range.start..2 * range.end]);
        columns.map(|c| c as usize).zip(weights.map(f16_to_f32))
    }

    /// The columns and weights of a row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> + Clone {
        let mut ends = ints(&self.ptr[4 * row..4 * (row + 2)]).map(|p| p as usize);
        let start = ends.next().unwrap_or(0);
        self.entries(start..ends.next().unwrap_or(start))
    }
}

impl ApView {
    /// Words of 64 bits in a plane of a row.
    pub fn words(&self) -> usize {
        words(self.columns)
    }

    /// Bytes of the tables of a row.
    pub fn lut_bytes(&self) -> usize {
        (2 * self.groups) << self.width
    }

    /// Some of its rows, which keep the sparse weights of all; `None` when they are not there.
    pub fn rows(&self, range: Range<usize>) -> Option<ApView> {
        let slice =
            |blob: &Blob, bytes: usize, more: usize| blob.slice(range.start * bytes..(range.end + more) * bytes);
        let sparse = match &self.sparse {
            None => None,
            Some(sparse) => Some(SparseView { ptr: slice(&sparse.ptr, 4, 1)?, ..sparse.clone() }),
        };
        Some(ApView {
            rows: range.len(),
            planes: self.planes.iter().map(|plane| slice(plane, 8 * self.words(), 0)).collect::<Option<_>>()?,
            lut: slice(&self.lut, self.lut_bytes(), 0)?,
            sparse,
            ..self.clone()
        })
    }

    /// The planes of a row, leading bits first.
    pub fn row_planes(&self, row: usize) -> Vec<&[u8]> {
        let bytes = 8 * self.words();
        let row = row * bytes..(row + 1) * bytes;
        self.planes.iter().map(|p| &p[row.clone()]).collect()
    }

    /// The codes of a row; `codes` has room for one per column.
    pub fn codes(&self, row: usize, codes: &mut [u8]) {
        unpack_row(&self.row_planes(row), codes);
    }

    /// The centroids of a row in half precision: `2^width` of each group.
    pub fn row_lut(&self, row: usize) -> impl ExactSizeIterator<Item = u16> + Clone {
        let entries = self.groups << self.width;
        halves(&self.lut[2 * row * entries..2 * (row + 1) * entries])
    }

    /// Where in [`ApView::row_lut`] the weight of each column is.
    pub fn entries(&self, row: usize) -> Vec<usize> {
        let mut codes = vec![0; self.columns];
        self.codes(row, &mut codes);
        let group = self.columns / self.groups;
        let entry = |(i, &code): (usize, &u8)| (i / group) << self.width | usize::from(code);
        codes.iter().enumerate().map(entry).collect()
    }

    /// The differences between the weights that are stored as they are and what their codes say, in their order.
    pub fn sparse_differences(&self) -> Vec<f32> {
        let Some(sparse) = &self.sparse else {
            return Vec::new();
        };
        let group = self.columns / self.groups;
        let mut ptr = sparse.ptr().map(|p| p as usize);
        let mut start = ptr.next().unwrap_or(0);
        let mut out = Vec::with_capacity(sparse.col().len());
        for (row, end) in ptr.enumerate() {
            let planes = self.row_planes(row);
            let tables = &self.lut[row * self.lut_bytes()..];
            for (column, weight) in sparse.entries(start..end) {
                let bit = |code: usize, plane: &&[u8]| code << 1 | usize::from(plane[column / 8] >> (column % 8) & 1);
                let code = planes.iter().fold(0, bit);
                let entry = (column / group) << self.width | code;
                let centroid = u16::from_le_bytes([tables[2 * entry], tables[2 * entry + 1]]);
                out.push(weight - f16_to_f32(centroid));
            }
            start = end;
        }
        out
    }

    /// The weights of a row as its codes say, without the sparse ones.
    pub fn dense_row(&self, row: usize) -> Vec<f32> {
        let lut: Vec<f32> = self.row_lut(row).map(f16_to_f32).collect();
        self.entries(row).into_iter().map(|e| lut[e]).collect()
    }

    /// The weights of a row.
    pub fn row(&self, row: usize) -> Vec<f32> {
        let mut weights = self.dense_row(row);
        if let Some(sparse) = &self.sparse {
            for (column, weight) in sparse.row(row) {
                weights[column] = weight;
            }
        }
        weights
    }
}
