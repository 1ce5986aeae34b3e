//! TL2 of bitnet.cpp: triples of weights as a 4-bit index and a sign bit, in tiles: 5 bits for 3 weights.
//!
//! ```text
//! v = 9 w0 + 3 w1 + w2, -13..=13      index = |v|, sign = v < 0         14, 15 stand for nothing
//!
//! byte  0         three_k*M/6   three_k*M*5/24    ..+ two_k*M/4    P    R = P rounded up to 32    R + 32
//!       +--------------+-------------+------------------+----------+----+-----------+------------+
//!       | indices (A3) |  signs (S)  | TL1 pairs (A2)   |   zeros       | scale f32 | 28 zeros   |
//!       +--------------+-------------+------------------+----------+----+-----------+------------+
//!
//! three_k = columns in whole tiles of BK, packed as triples      two_k = the rest, packed as pairs (see TL1)
//! P = (K - 256) * M / 3 * 5 / 8 + 64 * M, each division rounded down: the room for two_k = 256
//!
//! for each tile of BM rows, of BK columns in it (A2: of 32 columns), of 32 rows in that:
//!   A3: for each 6 columns,  32 bytes, one per row: index(c..c+3) << 4 | index(c+3..c+6)
//!   S:  for each 24 columns, 16 u16: word r has the signs of row r in bits 15, 13 .. 1 and of row r + 16
//!       in bits 14, 12 .. 0, triple by triple
//!   A2: for each 4 columns,  32 bytes, one per row, as in TL1
//!   the 32 bytes hold rows 0-7, 16-23, 8-15, 24-31
//! ```
//!
//! As for TL1 the tiles differ by shape and are not in the file; [`published`] knows those of `setup_env.py`.
//! (The preset for 4096 x 1536 names bm 64, with which the reference's converter stops: no file has it.)
//!
//! A triple of zeros with its sign bit set is never written; it reads as zeros. The reference adds a tile's
//! products in 16 bits, which holds `BK` up to 240; here sums are exact for any.

use super::ternary_layout::{BadCode, TAIL, TernaryError, Tiles};
use super::{TypeId, TypeInfo, per_tensor, tl1};

/// Columns and bytes of the smallest part of a row that is whole in bytes.
const BLOCK: usize = 24;
const BYTES: usize = 5;
/// Rows of a micro-tile, the only `bm` there is.
const MICRO: usize = 32;
/// Columns of a tile of pairs.
const PAIRS: usize = 32;
/// Most columns that are packed as pairs.
const MAX_TWO_K: usize = 256;
/// Fewest columns of a matrix: its size counts on as many.
pub const MIN_COLUMNS: u64 = MAX_TWO_K as u64;
const _: () = assert!(BYTES * 8 == BLOCK / 3 * 5);

/// TL2 in the registry.
pub const INFO: TypeInfo = per_tensor(TypeId::TL2, "tl2", BLOCK, BYTES);

/// Rows, columns and tiles of `setup_env.py`: bitnet_b1_58-large, bitnet_b1_58-3B, Llama3-8B-1.58.
const PUBLISHED: [(u64, u64, Tiles); 10] = [
    (1536, 4096, Tiles::new(256, 96, 32)),
    (1536, 1536, Tiles::new(128, 192, 32)),
    (4096, 1536, Tiles::new(256, 96, 32)),
    (3200, 8640, Tiles::new(160, 96, 32)),
    (3200, 3200, Tiles::new(320, 96, 32)),
    (8640, 3200, Tiles::new(320, 96, 32)),
    (14336, 4096, Tiles::new(256, 96, 32)),
    (4096, 14336, Tiles::new(128, 96, 32)),
    (1024, 4096, Tiles::new(256, 96, 32)),
    (4096, 4096, Tiles::new(128, 96, 32)),
];

/// The tiles that bitnet.cpp's `setup_env.py` packs a matrix of this shape with.
pub fn published(columns: u64, rows: u64) -> Option<Tiles> {
    let known = PUBLISHED.iter().find(|&&(m, k, _)| (m, k) == (rows, columns));
    known.map(|&(_, _, tiles)| tiles)
}

/// Size of a tensor: the codes, rounded up to 32, and 32. `None` for fewer than 256 columns.
pub fn tensor_bytes(columns: u64, rows: u64) -> Option<u64> {
    let three = columns.checked_sub(MAX_TWO_K as u64)?.checked_mul(rows)?.checked_div(3)?.checked_mul(5)? / 8;
    let two = rows.checked_mul(MAX_TWO_K as u64 / 4)?;
    three.checked_add(two)?.checked_next_multiple_of(TAIL as u64)?.checked_add(TAIL as u64)
}

/// `P`: bytes of a checked matrix up to where the padding of the scale starts.
pub(super) fn code_bytes(columns: usize, rows: usize) -> usize {
    (columns - MAX_TWO_K) * rows / 3 * 5 / 8 + MAX_TWO_K / 4 * rows
}

/// The three weights of an index without sign.
pub fn triple(index: u8) -> Option<[i8; 3]> {
    // Balanced base 3: adding 13 makes every digit 0, 1 or 2.
    let v = index as i8 + 13;
    (index < 14).then(|| [v / 9 - 1, v / 3 % 3 - 1, v % 3 - 1])
}

pub(super) fn check(tiles: Tiles, columns: usize, rows: usize) -> Result<(), TernaryError> {
    let refuse = |rule| Err(TernaryError::Tiles { ty: TypeId::TL2, tiles, rows, columns, rule });
    let (bm, bk) = (tiles.rows as usize, tiles.columns as usize);
    if tiles.micro as usize != MICRO {
        return refuse("bm must be 32");
    }
    if bm == 0 || !bm.is_multiple_of(MICRO) {
        return refuse("BM must be a multiple of 32");
    }
    if bk == 0 || !bk.is_multiple_of(BLOCK) {
        return refuse("BK must be a multiple of 24");
    }
    if columns < MAX_TWO_K {
        let columns = columns as u64;
        return Err(TernaryError::Narrow { columns });
    }
    if bk > columns {
        return refuse("BK must not be more than the columns");
    }
    if !rows.is_multiple_of(bm) {
        return refuse("the rows must be a multiple of BM");
    }
    if !(columns % bk).is_multiple_of(PAIRS) {
        return refuse("the columns beyond whole tiles of BK must be a multiple of 32");
    }
    if columns % bk > MAX_TWO_K {
        return refuse("more than 256 columns lie beyond whole tiles of BK");
    }
    Ok(())
}

/// Where the parts of one row lie.
struct Places {
    bm: usize,
    bk: usize,
    three_k: usize,
    /// The row's byte in the first 32 bytes of its part of A3 and of A2.
    a3: usize,
    a2: usize,
    /// Its word in the first 32 bytes of its part of S, and the shift of its first sign bit.
    s: usize,
    shift: usize,
}

impl Places {
    fn new(tiles: Tiles, columns: usize, rows: usize, row: usize) -> Places {
        let (bm, bk) = (tiles.rows as usize, tiles.columns as usize);
        let three_k = columns / bk * bk;
        let two_k = columns - three_k;
        let (tile, in_tile) = (row / bm, row % bm);
        let (block, r) = (in_tile / MICRO, in_tile % MICRO);
        // Rows 8-15 and 16-23 change places.
        let byte = match r {
            8..16 => r + 8,
            16..24 => r - 8,
            _ => r,
        };
        let (signs, pairs) = (three_k * rows / 6, three_k * rows / 24 * 5);
        Places {
            bm,
            bk,
            three_k,
            a3: tile * three_k * bm / 6 + block * MICRO * bk / 6 + byte,
            s: signs + tile * three_k * bm / 24 + block * MICRO * bk / 24 + 2 * (r % 16),
            a2: pairs + tile * two_k * bm / 4 + block * MICRO * PAIRS / 4 + byte,
            shift: 15 - r / 16,
        }
    }

    /// The byte with the indices of columns `c..c + 6`.
    fn indices(&self, c: usize) -> usize {
        let (tile, c) = (c / self.bk, c % self.bk);
        self.a3 + tile * (self.bm * self.bk / 6) + c / 6 * 32
    }

    /// The byte and the bit in it that hold the sign of columns `c..c + 3`.
    fn sign(&self, c: usize) -> (usize, usize) {
        let (tile, c) = (c / self.bk, c % self.bk);
        let bit = self.shift - 2 * (c % BLOCK / 3);
        let word = self.s + tile * (self.bm * self.bk / 24) + c / BLOCK * 32;
        (word + bit / 8, bit % 8)
    }

    /// The byte with the pairs of columns `c..c + 4`, counted from the first column of pairs.
    fn pairs(&self, c: usize) -> usize {
        let (tile, c) = (c / PAIRS, c % PAIRS);
        self.a2 + tile * (self.bm * PAIRS / 4) + c / 4 * 32
    }
}

/// Unpacks one row.
pub(super) fn unpack_row(tiles: Tiles, rows: usize, row: usize, data: &[u8], out: &mut [i8]) -> Result<(), BadCode> {
    let at = Places::new(tiles, out.len(), rows, row);
    let (three, two) = out.split_at_mut(at.three_k);
    for (k, out) in three.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let byte = data[at.indices(3 * k / 6 * 6)];
        let code = if k % 2 == 0 { byte >> 4 } else { byte & 15 };
        let Some(weights) = triple(code) else {
            return Err(BadCode { column: 3 * k, code });
        };
        let (sign_byte, bit) = at.sign(3 * k);
        let negative = data[sign_byte] >> bit & 1 == 1;
        *out = weights.map(|w| if negative { -w } else { w });
    }
    for (k, out) in two.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        tl1::unpack_quad(data[at.pairs(4 * k)], out)
            .map_err(|bad| BadCode { column: at.three_k + 4 * k + bad.column, ..bad })?;
    }
    Ok(())
}

/// Packs one row into its places, which are zero.
pub(super) fn pack_row(tiles: Tiles, rows: usize, row: usize, codes: &[i8], data: &mut [u8]) {
    let at = Places::new(tiles, codes.len(), rows, row);
    let (three, two) = codes.split_at(at.three_k);
    for (k, w) in three.as_chunks::<3>().0.iter().enumerate() {
        let v = 9 * w[0] + 3 * w[1] + w[2];
        let index = v.unsigned_abs();
        data[at.indices(3 * k / 6 * 6)] |= if k % 2 == 0 { index << 4 } else { index };
        let (sign_byte, bit) = at.sign(3 * k);
        data[sign_byte] |= u8::from(v < 0) << bit;
    }
    for (k, w) in two.as_chunks::<4>().0.iter().enumerate() {
        data[at.pairs(4 * k)] = tl1::pack_quad(w);
    }
}
