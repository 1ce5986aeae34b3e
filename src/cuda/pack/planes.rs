//! Bit planes of any-precision weights for products whose lanes are quads of columns.
//!
//! ```text
//! [plane][tile of two rows][eight blocks of 64 columns][lane]  =  a dword
//!   lane l has quad l % 16 of a block, of row l / 16 of the tile;
//!   bit s % 4 of nibble w + 4 (s / 4) is that of weight w of the quad in block s of the eight
//! ```
//!
//! So a warp loads 128 bytes of a plane at a time, and four dwords whose bits are exchanged ([`quads`] says how) have
//! the codes of a quad in their halves. Rows that fill up the last tile and blocks that fill up the last eight are
//! zeros. A width of `b` bits reads the first `b` planes.

use trine_formats::anyprec::{ApView, FixedLut, words};

use super::{PackError, Shape};

/// Rows of a tile.
pub const ROWS: usize = 2;
/// Blocks of 64 columns whose bits a dword has.
pub const BLOCKS: usize = 8;
/// Dwords of a plane for a tile and eight blocks: the lanes of a warp.
pub const LANES: usize = 32;

/// Dwords of a plane of `rows` x `columns` weights.
///
/// # Errors
/// A matrix beyond all memory.
pub fn dwords(rows: usize, columns: usize) -> Result<usize, PackError> {
    let shape = Shape { what: "any-precision", rows, columns };
    shape.size([rows.div_ceil(ROWS), words(columns).div_ceil(BLOCKS), LANES])
}

/// The planes of a matrix at a width.
///
/// # Errors
/// A matrix beyond all memory.
pub fn planes(view: &ApView) -> Result<Vec<u32>, PackError> {
    let (of_row, dwords) = (8 * view.words(), dwords(view.rows, view.columns)?);
    let eights = view.words().div_ceil(BLOCKS);
    let mut packed = vec![0; dwords * view.planes.len()];
    for (plane, packed) in view.planes.iter().zip(packed.chunks_exact_mut(dwords.max(1))) {
        for (row, words) in plane.chunks_exact(of_row.max(1)).enumerate() {
            let first = row / ROWS * eights * LANES + row % ROWS * (LANES / ROWS);
            for (block, word) in words.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                let to = &mut packed[first + block / BLOCKS * LANES..][..LANES / ROWS];
                for (quad, dword) in to.iter_mut().enumerate() {
                    *dword |= place((word >> (4 * quad)) as u32 & 15, block % BLOCKS);
                }
            }
        }
    }
    Ok(packed)
}

/// The bits of a quad in block `s` of eight.
fn place(quad: u32, s: usize) -> u32 {
    // Bit w goes to bit 4 w.
    let spread = (quad & 1) | (quad & 2) << 3 | (quad & 4) << 6 | (quad & 8) << 9;
    spread << (16 * (s / 4) + s % 4)
}

/// Centroids of a matrix at a width, in the order of rows and groups, 16 bits each, and the scales of the rows.
pub struct Tables {
    /// As integers, or in half precision where there are no scales.
    pub centroids: Vec<u8>,
    /// One for each row.
    pub scales: Vec<f32>,
}

impl Tables {
    /// Centroids as integers with a scale for each row.
    pub fn fixed(view: &ApView) -> Tables {
        let mut tables = Tables { centroids: Vec::with_capacity(view.lut.len()), scales: Vec::new() };
        for row in 0..view.rows {
            let fixed = FixedLut::new(view.row_lut(row));
            tables.centroids.extend(fixed.centroids.iter().flat_map(|c| c.to_le_bytes()));
            tables.scales.push(fixed.scale);
        }
        tables
    }

    /// Centroids in half precision, as the file has them.
    pub fn floats(view: &ApView) -> Tables {
        Tables { centroids: view.lut.to_vec(), scales: Vec::new() }
    }
}

/// The codes of a quad in two blocks, from the same dword of up to four planes, the leading one first: nibble `w` of the
/// low half of dword `m` is the code of weight `w` in block `m`, that of the high half in block `m + 4`. Planes that are
/// not there leave zeros below a code.
pub fn quads(planes: [u32; 4]) -> [u32; 4] {
    let mut w = [planes[3], planes[2], planes[1], planes[0]];
    let mut exchange = |a: usize, b: usize, by: u32, mask: u32| {
        let t = ((w[a] >> by) ^ w[b]) & mask;
        w[b] ^= t;
        w[a] ^= t << by;
    };
    exchange(0, 1, 1, 0x5555_5555);
    exchange(2, 3, 1, 0x5555_5555);
    exchange(0, 2, 2, 0x3333_3333);
    exchange(1, 3, 2, 0x3333_3333);
    w
}

#[cfg(test)]
mod tests {
    use trine_formats::gguf::Blob;

    use super::*;

    #[test]
    fn every_code_is_found_where_a_lane_looks_for_it() {
        let (rows, columns, width) = (5, 64 * 9 + 7, 4);
        let code = |row: usize, column: usize| ((row * 7 + column * 5 + column / 64) % 16) as u8;
        let bytes = 8 * words(columns);
        let mut files = vec![vec![0; rows * bytes]; width];
        for row in 0..rows {
            let codes: Vec<u8> = (0..columns).map(|column| code(row, column)).collect();
            let mut places: Vec<&mut [u8]> =
                files.iter_mut().map(|plane| &mut plane[row * bytes..(row + 1) * bytes]).collect();
            trine_formats::anyprec::pack_row(&codes, &mut places);
        }
        let view = ApView {
            width: width as u8,
            columns,
            rows,
            groups: 1,
            planes: files.into_iter().map(Blob::from_vec).collect(),
            lut: Blob::from_vec(Vec::new()),
            sparse: None,
        };
        let packed = planes(&view).expect("a layout");
        let dwords = dwords(rows, columns).expect("a size");
        assert_eq!((packed.len(), dwords), (width * 3 * 2 * 32, 3 * 2 * 32));
        for row in 0..6 {
            for column in 0..1024 {
                let (block, quad) = (column / 64, column % 64 / 4);
                let at = (row / 2 * 2 + block / 8) * 32 + row % 2 * 16 + quad;
                let codes = quads([0, 1, 2, 3].map(|plane| packed[plane * dwords + at]));
                let found = codes[block % 4] >> (16 * (block % 8 / 4) + 4 * (column % 4)) & 15;
                let there = row < rows && column < columns;
                assert_eq!(found, if there { code(row, column).into() } else { 0 }, "{row} {column}");
            }
        }
    }
}
