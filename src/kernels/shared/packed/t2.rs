//! 2-bit ternary codes, 32 rows interleaved: the bytes of TQ2_0, and of the rows of I2_S, TL1 and TL2, for all
//! instruction sets.
//!
//! A group holds its rows in units of 128 columns. Unit, 1024 bytes:
//!
//! ```text
//! chunk c = 0..8, half n = 0..2, row i = 0..16:   dword at ((2c + n) * 16 + i) * 4
//!   = dword c of the unit's 32 code bytes of row 16n + i, as they are in the file
//! ```
//!
//! The two bits at shift 2s of chunk c belong to columns 4k..4k+4 of the unit, k = 8s + c (TQ2_0) or
//! 8(3 - s) + c (I2_S): four rows or more meet one dword of int8 activations in natural order per plane and chunk.
//!
//! TQ2_0 puts the 32 f16 scales of a 256-block before its two units (2112 bytes in all): in a place of
//! their own they would be a second stream from memory, which costs more than half of the speed.

use trine_formats::types::{Part, TypeId, info, stq1_0, tq1_0};

use super::{Arranged, Encoding, Layout, Multiply, dword};
use crate::Isa;
use crate::proof::Needs;
use crate::shared::ternary::{self, Quantizer};

/// Rows of a group.
pub(crate) const ROWS: usize = 32;
/// Columns of a unit.
pub(crate) const UNIT: usize = 128;
/// Code bytes of a unit of one row, and of the group.
const UNIT_ROW: usize = 32;
pub(crate) const UNIT_BYTES: usize = ROWS * UNIT_ROW;
/// The f16 scales before two units of TQ2_0.
pub(crate) const SCALES: usize = 2 * ROWS;
/// Bytes of a TQ2_0 block of one row, its codes first.
const BLOCK_ROW: usize = info::TQ2_0.bytes;
pub(crate) const BLOCK: usize = SCALES + 2 * UNIT_BYTES;
/// Bytes of a Q8_K block.
const Q8_K: usize = info::Q8_K.bytes;

/// The layouts of all ternary types: those with scales are multiplied by `blocks`, the others by `rows`.
/// Kernels check their calls against the first of the ones and the fourth, the first of the others.
pub(crate) const fn layouts(needs: Needs, blocks: Multiply, rows: Multiply, tile: usize) -> [Layout; 6] {
    [
        Layout { types: &[TypeId::TQ2_0], pack: pack_tq2_0, ..with_scales(needs, blocks, tile) },
        Layout { types: &[TypeId::TQ1_0], pack: pack_tq1_0, ..with_scales(needs, blocks, tile) },
        Layout { types: &[TypeId::I2_S], ..whole_rows(needs, Quantizer::Floored, rows, tile) },
        Layout { types: &[TypeId::TL1, TypeId::TL2], ..whole_rows(needs, Quantizer::Exact, rows, tile) },
        Layout {
            types: &[TypeId::STQ1_0, TypeId::STQ1_0_43],
            pack: pack_stq1_0::<false>,
            ..with_scales(needs, blocks, tile)
        },
        Layout { types: &[TypeId::STQ1_0_CONTIGUOUS], pack: pack_stq1_0::<true>, ..with_scales(needs, blocks, tile) },
    ]
}

/// The layout of types with a scale for each block; which they are is left open.
pub(crate) const fn with_scales(needs: Needs, multiply: Multiply, tile: usize) -> Layout {
    Layout {
        types: &[],
        needs,
        name: "2-bit x32",
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: group_bytes_tq2_0,
        pack: pack_tq2_0,
        acts: Arranged::Q8K(TypeId::TQ2_0),
        act_bytes: act_bytes_q8_k,
        arrange: arrange_q8_k,
        multiply,
        tile,
    }
}

/// The layout of types with one scale; which they are is left open.
pub(crate) const fn whole_rows(needs: Needs, quantizer: Quantizer, multiply: Multiply, tile: usize) -> Layout {
    Layout {
        encoding: Encoding::Int8(quantizer),
        group_bytes: |n| n.div_ceil(UNIT) * UNIT_BYTES,
        pack: pack_rows,
        acts: Arranged::Int8 { quantizer, columns: UNIT },
        act_bytes: act_bytes_int8,
        arrange: arrange_int8,
        ..with_scales(needs, multiply, tile)
    }
}

/// Bytes of a group of TQ2_0.
fn group_bytes_tq2_0(n: usize) -> usize {
    n / 256 * BLOCK
}

/// One unit of up to 32 rows whose code bytes start at `at(row)`.
fn interleave<'a>(rows: usize, at: impl Fn(usize) -> &'a [u8], out: &mut [u8]) {
    for row in 0..ROWS {
        // Rows that are not there repeat the last; nobody looks at their outputs.
        let from = at(row.min(rows - 1));
        for c in 0..UNIT_ROW / 4 {
            let to = ((2 * c + row / 16) * 16 + row % 16) * 4;
            out[to..to + 4].copy_from_slice(&dword(from, c));
        }
    }
}

/// TQ2_0.
pub(crate) fn pack_tq2_0(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    pack_blocks(w, n, out, |block: &[u8; BLOCK_ROW]| *block)
}

/// TQ1_0, every digit as a code of two bits.
pub(crate) fn pack_tq1_0(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    pack_blocks(w, n, out, tq1_0::to_tq2_0)
}

/// STQ1_0, every lane of a group as a code of two bits.
fn pack_stq1_0<const CONTIGUOUS: bool>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    pack_blocks(w, n, out, stq1_0::to_tq2_0::<CONTIGUOUS>)
}

/// Up to [`ROWS`] rows of 256-blocks of `BYTES`, which `as_tq2_0` brings into the form of TQ2_0.
fn pack_blocks<const BYTES: usize>(
    w: &[u8],
    n: usize,
    out: &mut [u8],
    as_tq2_0: impl Fn(&[u8; BYTES]) -> [u8; BLOCK_ROW],
) -> bool {
    let row_bytes = n / 256 * BYTES;
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= ROWS, "weights");
    if rows == 0 {
        return true;
    }
    let w = w.as_chunks().0;
    for (b, out) in out.chunks_exact_mut(BLOCK).enumerate() {
        // Rows that are not there repeat the last; nobody looks at their outputs.
        let blocks: [[u8; BLOCK_ROW]; ROWS] =
            std::array::from_fn(|row| as_tq2_0(&w[row.min(rows - 1) * (n / 256) + b]));
        let (scales, units) = out.split_at_mut(SCALES);
        for (scale, block) in scales.chunks_exact_mut(2).zip(&blocks) {
            scale.copy_from_slice(&block[64..]);
        }
        for (u, unit) in units.chunks_exact_mut(UNIT_BYTES).enumerate() {
            interleave(rows, |row| &blocks[row][u * UNIT_ROW..][..UNIT_ROW], unit);
        }
    }
    true
}

/// Rows without block scales.
pub(crate) fn pack_rows(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = ternary::row_bytes(n);
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= ROWS, "weights");
    if rows > 0 {
        for (u, unit) in out.chunks_exact_mut(UNIT_BYTES).enumerate() {
            let at = |row: usize| &w[row * row_bytes + u * UNIT_ROW..][..UNIT_ROW];
            interleave(rows, at, unit);
        }
    }
    true
}

/// `[blocks][256 int8]`, `[blocks] f32 scale`, `[blocks] i32 sum of the int8`.
pub(crate) fn act_bytes_q8_k(n: usize) -> usize {
    (n / 256 * 264).next_multiple_of(64)
}

pub(crate) fn arrange_q8_k(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    let blocks = n / 256;
    assert_eq!(act.len(), blocks * Q8_K, "activation row");
    let (q, rest) = out.split_at_mut(n);
    let (scales, sums) = rest.split_at_mut(4 * blocks);
    for (b, act) in act.chunks_exact(Q8_K).enumerate() {
        q[256 * b..][..256].copy_from_slice(&act[info::Q8_K.at(Part::Codes)..info::Q8_K.at(Part::Sums)]);
        scales[4 * b..][..4].copy_from_slice(&act[..4]);
        let sums_of_16 = act[info::Q8_K.at(Part::Sums)..].chunks_exact(2);
        let sum: i32 = sums_of_16.map(|s| i32::from(i16::from_le_bytes([s[0], s[1]]))).sum();
        sums[4 * b..][..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// `a`, `S` and 56 bytes of nothing, then the int8 values in natural order.
pub(crate) fn arrange_int8(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), ternary::act_bytes(n), "activation row");
    out[..8].copy_from_slice(&act[..8]);
    let (q, padding) = out[64..].split_at_mut(act.len() - 8);
    q.copy_from_slice(&act[8..]);
    padding.fill(0);
}

/// Bytes of an arranged row of int8 activations.
pub(crate) fn act_bytes_int8(n: usize) -> usize {
    64 + n.next_multiple_of(UNIT)
}

/// The parts of an arranged Q8_K row.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    pub q: *const u8,
    pub scales: *const f32,
    pub sums: *const i32,
}

impl Act {
    pub fn new(act: &[u8], n: usize) -> Act {
        let (q, rest) = act.split_at(n);
        let (scales, sums) = rest.split_at(n / 64);
        Act { q: q.as_ptr(), scales: scales.as_ptr().cast(), sums: sums.as_ptr().cast() }
    }
}
