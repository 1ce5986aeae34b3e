//! Weight rows for the exact kernels: 16 rows side by side, so that what a lane loads is a fragment of `mma.m16n8k32`.
//!
//! A row is taken as dwords, as they stand in the blocks of the file without the scales. Sixteen rows are a tile, eight
//! dwords of each of its rows a slab of 128 dwords, and slabs follow one another along the row:
//!
//! ```text
//! slab, dword 4 l + i  =  row g + 8 (i & 1), dword t + 4 (i >> 1)      lane l = 4 g + t, i = 0..4
//! ```
//!
//! Lane `l` loads its 16 bytes at once, a warp 512 bytes in a row, and gets registers a0 to a3:
//!
//! | type | a slab is | register `i` |
//! |---|---|---|
//! | TQ2_0 and other ternary rows | half a block, four planes of 32 columns | `(dword i >> 2 plane) & 0x03030303` |
//! | Q8_0 | a block | `dword i` |
//! | Q4_0 | two blocks `b`, the second of zeros at the end of an odd number | `dword 2 b + i % 2 >> 4 (i / 2) & 0x0f0f0f0f` |
//!
//! Scales stand apart, sixteen for each block of a tile: rows 0, 8, 1, 9, … 7, 15, so that a lane finds those of rows
//! `g` and `g + 8` in one dword. Rows that fill up the last tile are zeros.

use trine_formats::types::ternary::{TernaryData, TernaryError};
use trine_formats::types::{Part, TypeId, info};

use super::{PackError, Shape};
use crate::fragment::ROWS;

/// Dwords of a row that lie in one slab.
pub const SLAB: usize = 8;
/// Weights that make one block of two-bit codes.
const TERNARY: usize = 256;

/// A matrix of weights in tiles of 16 rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TiledRows {
    /// Rows of the matrix; those that fill up the last tile are not counted.
    pub rows: usize,
    /// Weights per row.
    pub columns: usize,
    /// Codes: `[tile][slab][lane][4]`.
    pub codes: Vec<u32>,
    /// Scales in half precision: `[tile][block][16]`. Empty where one scale belongs to the whole tensor.
    pub scales: Vec<u16>,
}

/// The dword of a slab that holds dword `d` (0..8) of row `r` (0..16).
pub const fn place(r: usize, d: usize) -> usize {
    let lane = 4 * (r % 8) + d % 4;
    4 * lane + r / 8 + 2 * (d / 4)
}

/// The place of row `r`'s scale among the sixteen of a block.
pub const fn scale_place(r: usize) -> usize {
    2 * (r % 8) + r / 8
}

impl TiledRows {
    /// Zeros: `dwords` of codes and `blocks` of scales for every row.
    fn empty(shape: Shape, dwords: usize, blocks: usize) -> Result<TiledRows, PackError> {
        let tiles = shape.rows.div_ceil(ROWS);
        let slabs = dwords.div_ceil(SLAB);
        let codes = shape.size([tiles, slabs, SLAB * ROWS])?;
        let scales = shape.size([tiles, blocks, ROWS])?;
        Ok(TiledRows { rows: shape.rows, columns: shape.columns, codes: vec![0; codes], scales: vec![0; scales] })
    }

    /// Tiles of 16 rows.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Puts one row into its tile: its dwords and its scales.
    fn put(&mut self, row: usize, dwords: impl Iterator<Item = u32>, scales: impl Iterator<Item = u16>) {
        let (tile, r, tiles) = (row / ROWS, row % ROWS, self.tiles());
        let codes = self.codes.len() / tiles;
        let codes = &mut self.codes[tile * codes..][..codes];
        for (d, dword) in dwords.enumerate() {
            codes[d / SLAB * SLAB * ROWS + place(r, d % SLAB)] = dword;
        }
        let of_tile = self.scales.len() / tiles;
        let of_tile = &mut self.scales[tile * of_tile..][..of_tile];
        for (block, scale) in scales.enumerate() {
            of_tile[block * ROWS + scale_place(r)] = scale;
        }
    }
}

/// The half-precision scale of a block.
fn scale_of(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Little-endian dwords.
fn dwords(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let dwords = bytes.as_chunks::<4>().0;
    dwords.iter().map(|b| u32::from_le_bytes(*b))
}

/// Lays out a matrix of a type with blocks: TQ2_0, Q8_0, Q4_0, or TQ1_0 and STQ1_0, which get the codes of TQ2_0 that stand
/// for the same weights. `data` is the tensor as the file has it.
///
/// # Errors
/// Another type, rows that are no whole blocks, data of another length, a matrix beyond all memory.
pub fn blocks(ty: TypeId, data: &[u8], rows: usize, columns: usize) -> Result<TiledRows, PackError> {
    // Where the codes of a block of ternary weights are those that they decode to.
    let mut trits = None;
    let info = match ty {
        TypeId::TQ1_0 | TypeId::STQ1_0 | TypeId::STQ1_0_43 | TypeId::STQ1_0_CONTIGUOUS => {
            trits = ty.integers();
            ty.info().unwrap_or(&info::TQ1_0)
        }
        TypeId::TQ2_0 => &info::TQ2_0,
        TypeId::Q8_0 => &info::Q8_0,
        TypeId::Q4_0 => &info::Q4_0,
        _ => {
            return Err(PackError::Type { name: ty.to_string() });
        }
    };
    let shape = Shape { what: info.name, rows, columns };
    let blocks = shape.blocks(info.block)?;
    shape.expect(data.len(), shape.size([rows, blocks, info.bytes])?)?;
    let of_block = if trits.is_some() { TERNARY / 16 } else { (info.bytes - 2) / 4 };
    let mut packed = TiledRows::empty(shape, shape.size([blocks, of_block])?, blocks)?;
    if columns == 0 {
        return Ok(packed);
    }
    let scale = info.at(Part::Scale);
    // The scale is the first or the last part of a block, the codes are the rest of it.
    let codes = if scale == 0 { 2..info.bytes } else { 0..scale };
    for (row, data) in data.chunks_exact(blocks * info.bytes).enumerate() {
        let each = || data.chunks_exact(info.bytes);
        let scales = each().map(|block| scale_of(block, scale));
        if let Some(form) = trits {
            let mut codes = Vec::with_capacity(blocks * TERNARY / 16);
            form.each_block(info, data, |_, block| codes.extend(planes(&block.levels)));
            packed.put(row, codes.into_iter(), scales);
        } else {
            let codes = each().flat_map(|block| dwords(&block[codes.clone()]));
            packed.put(row, codes, scales);
        }
    }
    Ok(packed)
}

/// The 16 dwords of two-bit codes of a block as TQ2_0 has them: byte `m` of a half holds the codes `m`, `m + 32`, `m +
/// 64` and `m + 96`, the lowest bits first.
fn planes(codes: &[i8; TERNARY]) -> [u32; TERNARY / 16] {
    std::array::from_fn(|d| {
        let first = d / 8 * 128 + d % 8 * 4;
        let byte = |j: usize| {
            let code = |plane: usize| (codes[first + 32 * plane + j] + 1) as u8 & 3;
            code(0) | code(1) << 2 | code(2) << 4 | code(3) << 6
        };
        u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
    })
}

/// Lays out a matrix with one scale for the whole tensor (I2_S, TL1, TL2) as two-bit codes. Columns that fill up the
/// last block of 256 have code 0, a weight of zero.
///
/// # Errors
/// A code that stands for no weight, a matrix beyond all memory.
pub fn ternary(data: &TernaryData) -> Result<TiledRows, TernaryRowsError> {
    let (rows, columns) = (data.rows(), data.columns());
    let shape = Shape { what: "ternary rows", rows, columns };
    let blocks = columns.div_ceil(TERNARY);
    let mut packed = TiledRows::empty(shape, shape.size([blocks, TERNARY / 16])?, 0)?;
    let mut codes = vec![0; blocks * TERNARY];
    for row in 0..rows {
        data.unpack_rows(row..row + 1, &mut codes[..columns])?;
        let blocks = codes.as_chunks::<TERNARY>().0.iter();
        packed.put(row, blocks.flat_map(planes), std::iter::empty());
    }
    Ok(packed)
}

/// Lays out a matrix of codes 0, 1, 2 in rows of whole blocks of 128, 32 bytes each: code `e` of a block stands at bit
/// `6 - 2 (e / 32)` of byte `e % 32`, as I2_S has them. Columns that fill up the last block of 256 have weights of
/// zero.
///
/// # Errors
/// Data of another length, a matrix beyond all memory.
pub fn two_bits(data: &[u8], rows: usize, columns: usize) -> Result<TiledRows, PackError> {
    let shape = Shape { what: "two-bit rows", rows, columns };
    let blocks = columns.div_ceil(TERNARY);
    let mut packed = TiledRows::empty(shape, shape.size([blocks, TERNARY / 16])?, 0)?;
    let mut codes = vec![0i8; blocks * TERNARY];
    each_row(data, shape, |row, of_row| {
        codes[..columns].copy_from_slice(of_row);
        let blocks = codes.as_chunks::<TERNARY>().0.iter();
        packed.put(row, blocks.flat_map(planes), std::iter::empty());
    })?;
    Ok(packed)
}

/// Calls `with` with the number and the weights, -1 to 2, of each row of [`two_bits`].
///
/// # Errors
/// Data of another length.
pub(super) fn each_row(data: &[u8], shape: Shape, mut with: impl FnMut(usize, &[i8])) -> Result<(), PackError> {
    const BLOCK: usize = 128;
    const BYTES: usize = 32;
    let Shape { rows, columns, .. } = shape;
    let of_row = columns.div_ceil(BLOCK) * BYTES;
    shape.expect(data.len(), shape.size([rows, of_row])?)?;
    let mut codes = vec![0i8; columns];
    for (row, data) in data.chunks_exact(of_row.max(1)).enumerate() {
        for (column, code) in codes.iter_mut().enumerate() {
            let (block, e) = (column / BLOCK, column % BLOCK);
            let byte = data[block * BYTES + e % BYTES];
            *code = (byte >> (6 - 2 * (e / BYTES)) & 3) as i8 - 1;
        }
        with(row, &codes);
    }
    Ok(())
}

/// Why a ternary matrix cannot be laid out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TernaryRowsError {
    /// The layout.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The data.
    #[error(transparent)]
    Data(#[from] TernaryError),
}

#[cfg(test)]
mod tests;
