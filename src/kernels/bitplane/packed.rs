//! The codes of a matrix in the form that the kernels for AVX-512 read them from fastest.
//!
//! Bit `i` of a code is here the bit of plane `i`, so that the index of a weight in its table has the same place for a
//! plane at every width, and what follows the planes in use can be ignored: the tables of narrow widths repeat.
//! A group of a row is a run of lines of 64 bytes, a byte for each weight of a block:
//!
//! - nibbles: planes 0 to 3 of two blocks; the first in the lower half of each byte, the second in the upper one;
//! - two kinds of crumbs: planes 4 and 5, and planes 6 and 7, of four blocks `a` to `d`. They lie where the fewest
//!   instructions bring them together with the nibbles:
//!
//! | bits of a byte | 0, 1 | 2, 3 | 4, 5 | 6, 7 |
//! |---|---|---|---|---|
//! | planes 4, 5 | b | d | a | c |
//! | planes 6, 7 | d | b | c | a |
//!
//! The lines of two rows alternate; a last single row has zeros at its side.
//!
//! Each kind is made when a width first needs it, in memory with large pages, as are the tables of each width. Plane 3 is
//! packed with the others where the file has it, needed or not, and so are 5 and 7: their bits change no product of
//! a narrower width.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use trine_formats::anyprec::{ApView, words};
use trine_formats::gguf::Blob;

use super::{Form, NumberPath, Rows};
use crate::kernels::packed::Arena;
use crate::pool::{self, Parts};

/// Memory that matrices take from when they are multiplied.
pub type SharedArena = Arc<Mutex<Arena>>;

/// Rows whose lines alternate.
pub(in crate::kernels) const PAIR: usize = 2;
/// Bytes of a line.
pub(in crate::kernels) const LINE: usize = 64;

/// Rows that a task packs.
const TASK: usize = 64;

/// Extents of a matrix whose groups are whole blocks.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Shape {
    /// Weights per row.
    pub columns: usize,
    /// Groups of a row.
    pub groups: usize,
}

impl Shape {
    /// Blocks of a group, the last of which may be shorter when there is one group.
    pub fn blocks(&self) -> usize {
        words(self.columns) / self.groups
    }

    /// Lines of nibbles of a group of a row.
    pub fn nibble_lines(&self) -> usize {
        self.blocks().div_ceil(2)
    }

    /// Lines of either kind of crumbs of a group of a row.
    pub fn crumb_lines(&self) -> usize {
        self.blocks().div_ceil(4)
    }

    /// Bytes of a row of lines.
    fn row_bytes(&self, kind: Kind) -> usize {
        self.groups * self.lines(kind) * LINE
    }

    /// Lines of a group of a row.
    pub fn lines(&self, kind: Kind) -> usize {
        match kind {
            Kind::Nibbles => self.nibble_lines(),
            Kind::Crumbs | Kind::LastCrumbs => self.crumb_lines(),
        }
    }

    /// Bytes of the tables of a row.
    fn table_bytes(&self, width: usize) -> usize {
        self.groups * 2 * entries(width)
    }
}

/// What a line holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::kernels) enum Kind {
    /// Planes 0 to 3.
    Nibbles,
    /// Planes 4 and 5.
    Crumbs,
    /// Planes 6 and 7.
    LastCrumbs,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Nibbles, Kind::Crumbs, Kind::LastCrumbs];

    /// Planes that it has room for.
    pub fn planes(self) -> Range<usize> {
        match self {
            Kind::Nibbles => 0..4,
            Kind::Crumbs => 4..6,
            Kind::LastCrumbs => 6..8,
        }
    }

    /// Whether codes of `width` bits have bits there.
    fn of(self, width: usize) -> bool {
        width > self.planes().start
    }
}

/// Entries of a table of `width` bits: what is shorter is there several times.
pub(in crate::kernels) const fn entries(width: usize) -> usize {
    if width < 4 { 16 } else { 1 << width }
}

/// Consecutive rows of a packed matrix at one width, the first of them one of even number.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct PackedRows<'a> {
    pub shape: Shape,
    /// Bits of a code.
    pub width: usize,
    /// Lines of each kind that the width needs, else nothing.
    pub lines: [&'a [u8]; 3],
    /// Of each group of each row (and of zeros at the side of a last single row): the lower bytes of all entries, then
    /// the upper ones. Those of fixed point have their highest bit changed.
    pub tables: &'a [u8],
    /// Of each row; 1 for single precision.
    pub scales: &'a [f32],
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
    fn check(&self, form: Form, acts: &[u8], tokens: usize, out: &[f32]) {
        assert_eq!(out.len(), self.rows() * tokens, "output size");
        assert!((1..=8).contains(&self.width), "width {}", self.width);
        let pairs = self.rows().next_multiple_of(PAIR);
        for (lines, kind) in self.lines.iter().zip(Kind::ALL) {
            if kind.of(self.width) {
                let bytes = pairs * self.shape.row_bytes(kind);
                assert_eq!(lines.len(), bytes, "lines of {kind:?}");
                assert!(lines.as_ptr().addr().is_multiple_of(LINE), "alignment");
            }
        }
        let tables = pairs * self.shape.table_bytes(self.width);
        assert_eq!(self.tables.len(), tables, "tables");
        assert!(
            self.tables.as_ptr().addr().is_multiple_of(LINE),
            "alignment"
        );
        let act_bytes = form.act_bytes(self.shape.columns);
        assert_eq!(acts.len(), tokens * act_bytes, "activations");
        assert!(acts.as_ptr().addr().is_multiple_of(LINE), "alignment");
    }
}

/// [`super::multiply`] of packed rows, for which the processor has the kernels.
///
/// # Panics
/// When lengths do not fit, or `acts` are not aligned to 64 bytes.
pub(super) fn multiply(
    rows: &PackedRows<'_>,
    form: Form,
    acts: &[u8],
    tokens: usize,
    out: &mut [f32],
) {
    rows.check(form, acts, tokens, out);
    if tokens == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rows are packed where the instructions are there; the lengths were checked.
    unsafe {
        crate::kernels::x86::bitplane::multiply_packed(rows, form, acts, tokens, out);
    }
}

/// The packed codes of a matrix, as many as were needed.
pub(super) struct Lines {
    arena: SharedArena,
    kinds: [OnceLock<Option<Blob>>; 3],
}

impl Lines {
    /// Of a matrix whose groups are whole blocks, on a processor with the kernels.
    pub fn new(arena: SharedArena) -> Lines {
        Lines {
            arena,
            kinds: Default::default(),
        }
    }

    /// Where it takes memory from.
    pub fn arena(&self) -> &SharedArena {
        &self.arena
    }

    /// Bytes that all lines of a matrix take.
    pub fn bytes(widest: &ApView) -> usize {
        let kinds = Kind::ALL.into_iter();
        let kinds = kinds.filter(|kind| kind.of(widest.planes.len()));
        let row: usize = kinds.map(|kind| shape(widest).row_bytes(kind)).sum();
        row * widest.rows.next_multiple_of(PAIR)
    }

    /// The lines that codes of `width` bits need, of the matrix that is `widest` at its widest; what was not needed before
    /// is packed, on all threads of the current pool. `None` when the system has no memory for it.
    pub fn of(&self, width: u8, widest: &ApView) -> Option<[&[u8]; 3]> {
        let mut all = [&[][..]; 3];
        let kinds = Kind::ALL.into_iter().zip(&self.kinds);
        for (out, (kind, lines)) in all.iter_mut().zip(kinds) {
            if kind.of(usize::from(width)) {
                *out = lines
                    .get_or_init(|| pack(kind, widest, &self.arena))
                    .as_ref()?;
            }
        }
        Some(all)
    }
}

/// Tables of a width and scales of rows, as [`PackedRows`] has them.
pub(super) struct Tables {
    pub bytes: Blob,
    pub scales: Vec<f32>,
}

/// Extents of a matrix.
pub(super) fn shape(view: &ApView) -> Shape {
    Shape {
        columns: view.columns,
        groups: view.groups,
    }
}

/// A region of `arena` that `fill` writes whole pairs of rows of, from the number of the first on.
fn region(
    arena: &SharedArena,
    rows: usize,
    row_bytes: usize,
    fill: impl Fn(usize, &mut [u8]) + Sync,
) -> Option<Blob> {
    let mut arena = arena.lock().unwrap_or_else(|e| e.into_inner());
    let region = arena.region(rows.next_multiple_of(PAIR) * row_bytes, |out| {
        pool::chunks_mut(out, TASK * row_bytes, |i, out| fill(TASK * i, out));
        true
    });
    region.ok().flatten()
}

fn pack(kind: Kind, widest: &ApView, arena: &SharedArena) -> Option<Blob> {
    let (rows, shape) = (widest.rows, shape(widest));
    let planes: Vec<&Blob> = widest.planes.iter().collect();
    let planes = &planes[kind.planes().start..planes.len().min(kind.planes().end)];
    let bytes = 8 * widest.words();
    let packed = region(arena, rows, shape.row_bytes(kind), |first, out| {
        let count = TASK.min(rows - first);
        let mut parts = [&[][..]; 4];
        for (part, plane) in parts.iter_mut().zip(planes) {
            *part = &plane[first * bytes..(first + count) * bytes];
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: rows are packed where the instructions are there, and the lengths are those of the extents.
        unsafe {
            use crate::kernels::x86::bitplane::packed512;
            packed512::pack(kind, shape, &parts[..planes.len()], count, out);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (parts, count, out, shape);
    })?;
    planes.iter().for_each(|p| p.release());
    Some(packed)
}

/// The tables of a matrix at the width of `view`; `None` when the system has no memory for them.
pub(super) fn tables(path: NumberPath, view: &ApView, arena: &SharedArena) -> Option<Tables> {
    let (rows, shape, width) = (view.rows, shape(view), usize::from(view.width));
    let lut_bytes = view.lut_bytes();
    let mut scales = vec![1.0; rows];
    let parts = Parts::new(&mut scales);
    let bytes = region(arena, rows, shape.table_bytes(width), |first, out| {
        let range = first..rows.min(first + TASK);
        // planes are not looked at, but say what the width is
        let part = Rows {
            columns: view.columns,
            groups: view.groups,
            planes: &[&[][..]; 8][..width],
            lut: &view.lut[range.start * lut_bytes..range.end * lut_bytes],
        };
        // SAFETY: every task has rows of its own.
        let scales = unsafe { parts.part(range) };
        #[cfg(target_arch = "x86_64")]
        // SAFETY: rows are packed where the instructions are there, and the lengths are those of the extents.
        unsafe {
            use crate::kernels::x86::bitplane::packed512;
            packed512::pack_tables(&part, path == NumberPath::I16, out, scales);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (part, scales, out, path);
    })?;
    view.lut.release();
    Some(Tables { bytes, scales })
}
