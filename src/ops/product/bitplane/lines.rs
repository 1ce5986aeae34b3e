//! Packed codes and tables of a matrix, made when a product first needs them.
//!
//! They stand in memory with large pages. Each kind of line is made when a width first needs it, as are the tables of
//! each width.

use std::sync::OnceLock;

use trine_formats::anyprec::ApView;
use trine_formats::gguf::Blob;

use crate::kernels::Isa;
use crate::kernels::bitplane::packed::{self, Kind, PAIR, Shape};
use crate::kernels::bitplane::{NumberPath, PlaneRows};
use crate::ops::product::SharedArena;
use crate::pool::{self, Parts};

/// Rows that a task packs.
const TASK: usize = 64;

/// The packed codes of a matrix, as many as were needed.
pub(super) struct Lines {
    isa: Isa,
    arena: SharedArena,
    kinds: [OnceLock<Option<Blob>>; 3],
}

impl Lines {
    /// Empty lines for a matrix whose groups are whole blocks, for an instruction set that reads packed rows.
    pub fn new(isa: Isa, arena: SharedArena) -> Lines {
        Lines { isa, arena, kinds: Default::default() }
    }

    /// Empty lines of another matrix, for the same instruction set and in the same arena.
    pub fn of_another(&self) -> Lines {
        Lines::new(self.isa, self.arena.clone())
    }

    /// True if lines of this kind were packed.
    #[cfg(test)]
    pub fn has(&self, kind: Kind) -> bool {
        let mut kinds = Kind::ALL.into_iter().zip(&self.kinds);
        kinds.any(|(k, lines)| k == kind && lines.get().is_some())
    }

    /// The tables of a matrix at the width of `view`; `None` when the system has no memory for them.
    pub fn tables(&self, path: NumberPath, view: &ApView) -> Option<Tables> {
        tables(self.isa, path, view, &self.arena)
    }

    /// Bytes that all lines of a matrix take.
    pub fn bytes(widest: &ApView) -> usize {
        let kinds = Kind::ALL.into_iter();
        let kinds = kinds.filter(|kind| kind.of(widest.planes.len()));
        let row: usize = kinds.map(|kind| shape(widest).row_bytes(kind)).sum();
        row * widest.rows.next_multiple_of(PAIR)
    }

    /// The lines that codes of `width` bits need, of the matrix that is `widest` at its widest; what was not needed
    /// before is packed, on all threads of the current pool. `None` when the system has no memory for it.
    pub fn of(&self, width: u8, widest: &ApView) -> Option<[&[u8]; 3]> {
        let mut all = [&[][..]; 3];
        let kinds = Kind::ALL.into_iter().zip(&self.kinds);
        for (out, (kind, lines)) in all.iter_mut().zip(kinds) {
            if kind.of(usize::from(width)) {
                *out = lines.get_or_init(|| pack(self.isa, kind, widest, &self.arena)).as_ref()?;
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
    Shape { columns: view.columns, groups: view.groups }
}

/// A region of `arena` that `fill` writes whole pairs of rows of, from the number of the first on.
fn region(arena: &SharedArena, rows: usize, row_bytes: usize, fill: impl Fn(usize, &mut [u8]) + Sync) -> Option<Blob> {
    let mut arena = arena.lock().unwrap_or_else(|e| e.into_inner());
    let region = arena.region(rows.next_multiple_of(PAIR) * row_bytes, |out| {
        pool::chunks_mut(out, TASK * row_bytes, |i, out| fill(TASK * i, out));
        true
    });
    region.ok().flatten()
}

fn pack(isa: Isa, kind: Kind, widest: &ApView, arena: &SharedArena) -> Option<Blob> {
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
        packed::pack(isa, kind, shape, &parts[..planes.len()], count, out);
    })?;
    planes.iter().for_each(|p| p.release());
    Some(packed)
}

fn tables(isa: Isa, path: NumberPath, view: &ApView, arena: &SharedArena) -> Option<Tables> {
    let (rows, shape, width) = (view.rows, shape(view), usize::from(view.width));
    let lut_bytes = view.lut_bytes();
    let mut scales = vec![1.0; rows];
    let parts = Parts::new(&mut scales);
    let bytes = region(arena, rows, shape.table_bytes(width), |first, out| {
        let range = first..rows.min(first + TASK);
        // planes are not looked at, but say what the width is
        let part = PlaneRows {
            columns: view.columns,
            groups: view.groups,
            planes: &[&[][..]; 8][..width],
            lut: &view.lut[range.start * lut_bytes..range.end * lut_bytes],
        };
        // SAFETY: every task has rows of its own.
        let scales = unsafe { parts.part(range) };
        packed::pack_tables(isa, path, &part, out, scales);
    })?;
    view.lut.release();
    Some(Tables { bytes, scales })
}
