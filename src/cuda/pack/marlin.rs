//! MARLIN's layout of four-bit weights for kernels with half-precision activations.
//!
//! `C[m][n] = sum over k of A[m][k] * (code[k][n] - 8) * scale`: codes of K rows and N columns, and one scale for each
//! column or for each column of 128 rows. A tile has 16 rows and 64 columns of codes in 128 words, four for each lane,
//! which are its registers of B for eight products `m16n8k16`:
//!
//! ```text
//! word (a, 128 c + 4 l + j), bits 4 n..4 n + 4 = code[k][col],  e = [0, 2, 4, 6, 1, 3, 5, 7][n]
//! k = 16 a + {2t, 2t+1, 2t+8, 2t+9}[e % 4]      col = 64 c + 16 j + g + 8 (e / 4)      lane l = 4 g + t
//! ```
//!
//! Nibbles `n` and `n + 4` are neighbours along k, so that one mask takes a pair for an f16x2 register out of a word.
//! Source: the MARLIN paper, section 3.4, and its published packer.

use super::{Codes, PackError, Shape};
use crate::fragment::group;

/// Rows of a tile.
pub const TILE_ROWS: usize = 16;
/// Columns of a tile.
pub const TILE_COLUMNS: usize = 64;
/// Words of a tile.
pub const TILE_WORDS: usize = 128;
/// The code of weight zero.
pub const ZERO: u8 = 8;

/// Which of the eight weights of a register pair stands in nibble `n` of a word.
pub(super) const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// The `(k, column)` in a tile of weight `e` (0..8) of word `j` (0..4) of a lane.
pub(super) const fn weight(lane: usize, j: usize, e: usize) -> (usize, usize) {
    let (g, t) = group(lane);
    let k = 2 * t + e % 2 + 8 * (e / 2 % 2);
    (k, 16 * j + g + 8 * (e / 4))
}

/// Packs codes 0..=15, `codes[k * columns + n]`, into `[tile row][tile column][lane][4]`. Rows and columns are filled
/// up to whole tiles with weights of zero.
///
/// # Errors
/// Another number of codes, a code above 15, a matrix beyond all memory.
pub fn pack(codes: &[u8], rows: usize, columns: usize) -> Result<Vec<u32>, PackError> {
    let shape = Shape { what: "4-bit codes", rows, columns };
    let codes = Codes::new(shape, codes, ZERO, 15)?;
    let (tall, wide) = (rows.div_ceil(TILE_ROWS), columns.div_ceil(TILE_COLUMNS));
    let words = shape.size([tall, wide, TILE_WORDS])?;
    Ok((0..words)
        .map(|word| {
            let (tile, lane, j) = (word / TILE_WORDS, word % TILE_WORDS / 4, word % 4);
            let (a, c) = (tile / wide, tile % wide);
            (0..8).fold(0, |word, n| {
                let (k, column) = weight(lane, j, ORDER[n]);
                word | codes.at((TILE_ROWS * a + k, TILE_COLUMNS * c + column)) << (4 * n)
            })
        })
        .collect())
}

/// Scales of groups along k, `scales[group * columns + n]` in half precision: within each 64 columns number `8 i + j`
/// of the result is that of column `i + 8 j`.
///
/// # Errors
/// Columns that are no whole 64, another number of scales.
pub fn pack_group_scales(scales: &[u16], groups: usize, columns: usize) -> Result<Vec<u16>, PackError> {
    reorder("scales of groups", 64, scales, (groups, columns), |p| p / 8 + 8 * (p % 8))
}

/// Scales of columns: within each 32 columns number `8 i + j` of the result is that of column
/// `2 i + {0, 1, 8, 9, 16, 17, 24, 25}[j]`.
///
/// # Errors
/// Columns that are no whole 32, another number of scales.
pub fn pack_column_scales(scales: &[u16], columns: usize) -> Result<Vec<u16>, PackError> {
    reorder("scales of columns", 32, scales, (1, columns), column_order)
}

/// Which of 32 columns has the scale that stands at place `p`.
pub(super) const fn column_order(p: usize) -> usize {
    let (i, j) = (p / 8, p % 8);
    2 * i + j % 2 + 8 * (j / 2)
}

/// Every `block` values of every row in another order: number `p` of the result is number `from(p)`.
pub(super) fn reorder(
    what: &'static str,
    block: usize,
    values: &[u16],
    (rows, columns): (usize, usize),
    from: impl Fn(usize) -> usize,
) -> Result<Vec<u16>, PackError> {
    let shape = Shape { what, rows, columns };
    shape.blocks(block)?;
    shape.expect(values.len(), shape.size([rows, columns])?)?;
    let blocks = values.chunks_exact(block);
    Ok(blocks.flat_map(|values| (0..block).map(|p| values[from(p)]).collect::<Vec<_>>()).collect())
}

#[cfg(test)]
mod tests {
    use trine_testkit::npz::Npz;

    use super::*;

    #[test]
    fn equals_the_published_packer() {
        let golden = Npz::open("cuda/g_marlin_trirun_pack.npz");
        let packed = pack(&golden.u8("q4"), 256, 256).expect("a layout");
        let expected: Vec<u32> = golden.i32("B4").iter().map(|&w| w as u32).collect();
        assert_eq!(packed, expected);
        let scales = pack_group_scales(&golden.f16_bits("s_g128"), 2, 256).expect("an order");
        assert_eq!(scales, golden.f16_bits("s_g128_packed"));
        let scales = pack_column_scales(&golden.f16_bits("s_col"), 256).expect("an order");
        assert_eq!(scales, golden.f16_bits("s_col_packed"));
    }

    #[test]
    fn every_code_is_found_where_the_fragment_of_b_has_it() {
        // 17 x 65: one row and one column more than a tile.
        let (rows, columns) = (17, 65);
        let codes: Vec<u8> = (0..rows * columns).map(|i| (i * 7 % 16) as u8).collect();
        let packed = pack(&codes, rows, columns).expect("a layout");
        assert_eq!(packed.len(), 2 * 2 * TILE_WORDS);
        let mut found = vec![u8::MAX; 32 * 128];
        for (at, word) in packed.iter().enumerate() {
            let (tile, lane, j) = (at / TILE_WORDS, at % TILE_WORDS / 4, at % 4);
            // The low and the high pairs of a word's two shifts are the registers of two products.
            for n in 0..8 {
                let (register, half) = (n % 4 % 2, n / 4);
                let (k, column) = crate::fragment::half_b(lane, register, half);
                let column = 16 * j + column + 8 * (n % 4 / 2);
                let place = (16 * (tile / 2) + k) * 128 + 64 * (tile % 2) + column;
                assert_eq!(found[place], u8::MAX, "two codes in one place");
                found[place] = (word >> (4 * n) & 15) as u8;
            }
        }
        for (at, &code) in found.iter().enumerate() {
            let (k, n) = (at / 128, at % 128);
            let inside = k < rows && n < columns;
            let expected = if inside { codes[k * columns + n] } else { ZERO };
            assert_eq!(code, expected, "row {k}, column {n}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let error = pack(&[1, 16], 1, 2).expect_err("a code");
        assert_eq!(error.to_string(), "4-bit codes: code 16 at row 0, column 1");
        assert!(pack(&[0; 3], 2, 2).is_err());
        assert!(pack(&[], usize::MAX, 2).is_err());
        assert!(pack_group_scales(&[0; 96], 1, 96).is_err());
        assert!(pack_column_scales(&[0; 31], 32).is_err());
    }
}
