//! TL1 of bitnet.cpp: pairs of weights as 4-bit indices into a table of sums, in tiles.
//!
//! ```text
//! index of a pair (w0, w1) = 3 w0 + w1 + 4                      0..=8; 9..=15 stand for nothing
//! byte of four columns c.. = index(c, c+1) << 4 | index(c+2, c+3)
//!
//! for each tile of BM rows, of BK columns in it, of bm rows in that, of by = 256 / bm columns in that:
//!     64 bytes = for each 16 rows, for each 4 columns: one byte per row
//!
//! K*M/4 bytes of codes, then the scale (f32) and 28 zero bytes        K columns, M rows
//! ```
//!
//! bitnet.cpp generates a kernel per matrix shape, each with its own `BM`, `BK`, `bm`, and writes none of
//! them to the file. [`published`] knows those of `setup_env.py`, which prepared the released files. Its
//! `preset_kernels` differ for Llama3-8B (BM 256, 256, 128, 128 and bm 64, 32, 64, 32 in the order of the
//! table): files made with those need their tiles given.
//!
//! The reference adds a tile's products in 16 bits, which holds `BK` up to 256; here sums are exact for any.

use super::ternary_layout::{BadCode, TAIL, TernaryError, Tiles};
use super::{TypeId, TypeInfo, per_tensor};

/// Columns that a row is a whole number of.
const BLOCK: usize = 16;
const BYTES: usize = 4;
/// Bytes of a micro-tile.
const MICRO: usize = 64;
const _: () = assert!(BYTES * 4 == BLOCK);

/// TL1 in the registry.
pub const INFO: TypeInfo = per_tensor(TypeId::TL1, "tl1", BLOCK, BYTES);

/// Rows, columns and tiles of `setup_env.py`: bitnet_b1_58-large, bitnet_b1_58-3B, Llama3-8B-1.58.
const PUBLISHED: [(u64, u64, Tiles); 10] = [
    (1536, 4096, Tiles::new(256, 128, 32)),
    (1536, 1536, Tiles::new(128, 64, 64)),
    (4096, 1536, Tiles::new(256, 128, 32)),
    (3200, 8640, Tiles::new(160, 64, 32)),
    (3200, 3200, Tiles::new(320, 128, 64)),
    (8640, 3200, Tiles::new(320, 64, 32)),
    (14336, 4096, Tiles::new(256, 128, 32)),
    (4096, 14336, Tiles::new(128, 64, 64)),
    (1024, 4096, Tiles::new(256, 128, 32)),
    (4096, 4096, Tiles::new(128, 64, 64)),
];

/// The tiles that bitnet.cpp's `setup_env.py` packs a matrix of this shape with.
pub fn published(columns: u64, rows: u64) -> Option<Tiles> {
    let known = PUBLISHED.iter().find(|&&(m, k, _)| (m, k) == (rows, columns));
    known.map(|&(_, _, tiles)| tiles)
}

/// Size of a tensor: `K*M/4 + 32`.
pub fn tensor_bytes(columns: u64, rows: u64) -> Option<u64> {
    (columns.checked_mul(rows)? / 4).checked_add(TAIL as u64)
}

/// The two weights of an index.
pub fn pair(index: u8) -> Option<[i8; 2]> {
    (index < 9).then(|| [index as i8 / 3 - 1, index as i8 % 3 - 1])
}

/// The index of two ternary weights.
#[inline]
pub(super) fn index(w0: i8, w1: i8) -> u8 {
    (3 * w0 + w1 + 4) as u8
}

pub(super) fn check(tiles: Tiles, columns: usize, rows: usize) -> Result<(), TernaryError> {
    let (bm, bk, micro) = parts(tiles);
    let refuse = |rule| Err(TernaryError::Tiles { ty: TypeId::TL1, tiles, rows, columns, rule });
    if !columns.is_multiple_of(BLOCK) {
        return Err(TernaryError::Columns { ty: TypeId::TL1, columns, multiple: BLOCK });
    }
    if !matches!(micro, 32 | 64) {
        return refuse("bm must be 32 or 64");
    }
    if bm == 0 || !bm.is_multiple_of(micro) {
        return refuse("BM must be a multiple of bm");
    }
    if bk == 0 || !bk.is_multiple_of(256 / micro) {
        return refuse("BK must be a multiple of 256 / bm");
    }
    if !rows.is_multiple_of(bm) {
        return refuse("the rows must be a multiple of BM");
    }
    if !columns.is_multiple_of(bk) {
        return refuse("the columns must be a multiple of BK");
    }
    Ok(())
}

fn parts(tiles: Tiles) -> (usize, usize, usize) {
    (tiles.rows as usize, tiles.columns as usize, tiles.micro as usize)
}

/// The bytes of a row in order of its columns, four to a byte.
fn places(tiles: Tiles, row: usize, columns: usize) -> impl Iterator<Item = usize> {
    let (bm, bk, micro) = parts(tiles);
    let by = 256 / micro;
    let (tile, in_tile) = (row / bm, row % bm);
    let (block, in_block) = (in_tile / micro, in_tile % micro);
    let start = tile * bm * columns / 4 + block * micro * bk / 4 + in_block / 16 * (by / 4 * 16) + in_block % 16;
    (0..columns).step_by(4).map(move |c| {
        let (k_block, in_k) = (c / bk, c % bk);
        start + k_block * (bm * bk / 4) + in_k / by * MICRO + in_k % by / 4 * 16
    })
}

/// Unpacks one row.
pub(super) fn unpack_row(tiles: Tiles, row: usize, data: &[u8], out: &mut [i8]) -> Result<(), BadCode> {
    let places = places(tiles, row, out.len());
    for (quad, (at, out)) in places.zip(out.as_chunks_mut::<4>().0).enumerate() {
        unpack_quad(data[at], out).map_err(|bad| BadCode { column: 4 * quad + bad.column, ..bad })?;
    }
    Ok(())
}

/// The four weights of a byte.
#[inline]
pub(super) fn unpack_quad(byte: u8, out: &mut [i8; 4]) -> Result<(), BadCode> {
    for (half, code) in [byte >> 4, byte & 15].into_iter().enumerate() {
        let Some([w0, w1]) = pair(code) else {
            let column = 2 * half;
            return Err(BadCode { column, code });
        };
        (out[2 * half], out[2 * half + 1]) = (w0, w1);
    }
    Ok(())
}

/// Packs one row into its places.
pub(super) fn pack_row(tiles: Tiles, row: usize, codes: &[i8], data: &mut [u8]) {
    let places = places(tiles, row, codes.len());
    for (at, quad) in places.zip(codes.as_chunks::<4>().0) {
        data[at] = pack_quad(quad);
    }
}

/// The byte of four weights.
#[inline]
pub(super) fn pack_quad(w: &[i8; 4]) -> u8 {
    index(w[0], w[1]) << 4 | index(w[2], w[3])
}
