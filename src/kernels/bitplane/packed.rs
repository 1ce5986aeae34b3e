//! Products with codes that were packed for vector kernels.

use trine_formats::anyprec::words;

use super::{Arrangement, NumberPath, PlaneRows, reads_packed};
use crate::Isa;
use crate::arch::bitplane as native;
use crate::sizes::size;

pub use crate::shared::bitplane::packed::{Kind, PAIR, PackedRows, Shape};

/// [`super::multiply`] of packed rows.
///
/// # Panics
/// When lengths do not fit, `acts` are not aligned to 64 bytes, or `isa` has no kernels for packed rows.
pub fn multiply(isa: Isa, rows: &PackedRows<'_>, form: Arrangement, acts: &[u8], tokens: usize, out: &mut [f32]) {
    native::multiply_packed(isa, rows, form, acts, tokens, out);
}

/// Packs rows: `planes` are the bytes of `rows` rows of each plane of `kind` that the matrix has; `out` is whole
/// pairs of rows of [`Shape::row_bytes`].
///
/// # Panics
/// When lengths do not fit, groups are not whole blocks, or `isa` has no kernels for packed rows.
pub fn pack(isa: Isa, kind: Kind, shape: Shape, planes: &[&[u8]], rows: usize, out: &mut [u8]) {
    assert!(reads_packed(isa), "{isa} reads no packed rows");
    shape.check();
    assert!(planes.len() <= kind.planes().len(), "planes of {kind:?}");
    for plane in planes {
        assert_eq!(plane.len(), size([rows, 8, words(shape.columns)]), "plane");
    }
    let bytes = size([rows.next_multiple_of(PAIR), shape.row_bytes(kind)]);
    assert_eq!(out.len(), bytes, "lines of {kind:?}");
    native::pack(isa, kind, shape, planes, rows, out);
}

/// The tables of `rows`, as [`PackedRows`] has them, and their scales. The planes are only counted: nothing but their
/// number, the width, matters.
///
/// # Panics
/// When lengths do not fit, groups are not whole blocks, or `isa` has no kernels for packed rows.
pub fn pack_tables(isa: Isa, path: NumberPath, rows: &PlaneRows<'_>, out: &mut [u8], scales: &mut [f32]) {
    assert!(reads_packed(isa), "{isa} reads no packed rows");
    let shape = Shape { columns: rows.columns, groups: rows.groups };
    shape.check();
    let (count, width) = (scales.len(), rows.width());
    assert!((1..=8).contains(&width), "width {width}");
    assert_eq!(rows.lut.len(), size([count, rows.lut_bytes()]), "tables");
    let bytes = size([count.next_multiple_of(PAIR), shape.table_bytes(width)]);
    assert_eq!(out.len(), bytes, "packed tables");
    native::pack_tables(isa, rows, path == NumberPath::I16, out, scales);
}
