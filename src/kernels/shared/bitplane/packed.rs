//! The codes of a matrix in the form that vector kernels read them from fastest, AVX-512's above all.
//!
//! Bit `i` of a code is here the bit of plane `i`, so that the index of a weight in its table has the same place for a
//! plane at every width, and what follows the planes in use can be ignored: the tables of narrow widths repeat.
//! A group of a row is a run of lines of 64 bytes, a byte for each weight of a block:
//!
//! - nibbles: planes 0 to 3 of two blocks; the first in the lower half of each byte, the second in the upper one;
//! - two bits: planes 4 and 5, or planes 6 and 7, of four blocks `a` to `d`. They lie where the fewest instructions
//!   bring them together with the nibbles:
//!
//! | bits of a byte | 0, 1 | 2, 3 | 4, 5 | 6, 7 |
//! |---|---|---|---|---|
//! | planes 4, 5 | b | d | a | c |
//! | planes 6, 7 | d | b | c | a |
//!
//! The lines of two rows alternate; a last single row has zeros at its side.
//!
//! Plane 3 is packed with the others where the file has it, needed or not, and so are 5 and 7: their bits change no
//! product of a narrower width.

use std::ops::Range;

use trine_formats::anyprec::words;

#[cfg(target_arch = "x86_64")]
use super::Arrangement;
use crate::sizes::MAX_COLUMNS;
#[cfg(target_arch = "x86_64")]
use crate::sizes::size;

/// Rows whose lines alternate.
pub const PAIR: usize = 2;
/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Extents of a matrix whose groups are whole blocks.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Weights per row.
    pub columns: usize,
    /// Groups of a row.
    pub groups: usize,
}

impl Shape {
    /// # Panics
    /// When groups are not whole blocks.
    pub(crate) fn check(self) {
        assert!(self.columns > 0 && self.groups > 0, "an empty row");
        assert!(self.columns <= MAX_COLUMNS, "{} columns", self.columns);
        let whole = super::in_blocks(self.columns, self.groups);
        assert!(whole, "groups of whole blocks");
    }

    /// Blocks of a group, the last of which may be shorter when there is one group.
    pub fn blocks(&self) -> usize {
        words(self.columns) / self.groups
    }

    /// Lines of nibbles of a group of a row.
    pub fn nibble_lines(&self) -> usize {
        self.blocks().div_ceil(2)
    }

    /// Lines of planes 4 and 5, or of planes 6 and 7, of a group of a row.
    pub fn two_bit_lines(&self) -> usize {
        self.blocks().div_ceil(4)
    }

    /// Bytes of a row of lines.
    pub fn row_bytes(&self, kind: Kind) -> usize {
        self.groups * self.lines(kind) * LINE
    }

    /// Lines of a group of a row.
    pub fn lines(&self, kind: Kind) -> usize {
        match kind {
            Kind::Nibbles => self.nibble_lines(),
            Kind::Planes45 | Kind::Planes67 => self.two_bit_lines(),
        }
    }

    /// Bytes of the tables of a row.
    pub fn table_bytes(&self, width: usize) -> usize {
        self.groups * 2 * entries(width)
    }
}

/// Contents of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Planes 0 to 3.
    Nibbles,
    /// Planes 4 and 5.
    Planes45,
    /// Planes 6 and 7.
    Planes67,
}

impl Kind {
    /// All kinds, in the order of their planes.
    pub const ALL: [Kind; 3] = [Kind::Nibbles, Kind::Planes45, Kind::Planes67];

    /// Planes that it has room for.
    pub fn planes(self) -> Range<usize> {
        match self {
            Kind::Nibbles => 0..4,
            Kind::Planes45 => 4..6,
            Kind::Planes67 => 6..8,
        }
    }

    /// True if codes of `width` bits have bits there.
    pub fn of(self, width: usize) -> bool {
        width > self.planes().start
    }
}

/// Entries of a table of `width` bits: what is shorter is there several times.
pub(crate) const fn entries(width: usize) -> usize {
    if width < 4 { 16 } else { 1 << width }
}

/// Consecutive rows of a packed matrix at one width, the first of them one of even number.
#[derive(Clone, Copy)]
pub struct PackedRows<'a> {
    /// Extents of the matrix.
    pub shape: Shape,
    /// Bits of a code.
    pub width: usize,
    /// Lines of each kind that the width needs, else nothing.
    pub lines: [&'a [u8]; 3],
    /// Tables of each group of each row (and of zeros beside a last single row): the lower bytes of all entries, then
    /// the upper ones. Those of fixed point have their highest bit changed.
    pub tables: &'a [u8],
    /// Scales, `[row]`; 1 for single precision.
    pub scales: &'a [f32],
    /// Prefetch distance of products of one token, or a few, behind the weights in work, bytes; 0: no prefetch.
    pub ahead: usize,
}

impl<'a> PackedRows<'a> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.scales.len()
    }

    /// The rows `range`, which begins with an even one and ends with one or with the last.
    pub fn part(&self, range: &Range<usize>) -> PackedRows<'a> {
        assert!(range.start.is_multiple_of(PAIR), "half a pair of rows");
        let pairs = range.start..range.end.next_multiple_of(PAIR);
        let part = |all: &'a [u8], row: usize| match all {
            [] => all,
            _ => &all[pairs.start * row..pairs.end * row],
        };
        let mut lines = self.lines;
        for (lines, kind) in lines.iter_mut().zip(Kind::ALL) {
            *lines = part(lines, self.shape.row_bytes(kind));
        }
        PackedRows {
            lines,
            tables: part(self.tables, self.shape.table_bytes(self.width)),
            scales: &self.scales[range.clone()],
            ..*self
        }
    }

    /// All lengths fit each other.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn check(&self, form: Arrangement, acts: &[u8], tokens: usize, out: &[f32]) {
        self.shape.check();
        assert_eq!(out.len(), size([self.rows(), tokens]), "output size");
        assert!((1..=8).contains(&self.width), "width {}", self.width);
        let pairs = self.rows().next_multiple_of(PAIR);
        for (lines, kind) in self.lines.iter().zip(Kind::ALL) {
            if kind.of(self.width) {
                let bytes = size([pairs, self.shape.row_bytes(kind)]);
                assert_eq!(lines.len(), bytes, "lines of {kind:?}");
                assert!(lines.as_ptr().addr().is_multiple_of(LINE), "alignment");
            }
        }
        let tables = size([pairs, self.shape.table_bytes(self.width)]);
        assert_eq!(self.tables.len(), tables, "tables");
        assert!(self.tables.as_ptr().addr().is_multiple_of(LINE), "alignment");
        let act_bytes = form.act_bytes(self.shape.columns);
        assert_eq!(acts.len(), size([tokens, act_bytes]), "activations");
        assert!(acts.as_ptr().addr().is_multiple_of(LINE), "alignment");
    }
}
