//! Sparse-MARLIN's layout: four-bit weights of which two of four consecutive ones along k are kept.
//!
//! Weights are the left operand of `mma.sp.m16n8k32`: its rows are columns of the weight matrix. Kept values are a
//! matrix of half the height, packed like MARLIN's but with eight consecutive columns to a lane:
//!
//! ```text
//! word (a, 128 c + 4 l + j), nibble n:  k' = 16 a + {2t, 2t+1, 2t+8, 2t+9}[e % 4]      col = 64 c + 8 g + 4 (e / 4) + j
//! ```
//!
//! Metadata: each group of four along k has a nibble, the lower kept index in bits 0 and 1 and the higher one above;
//! sixteen bits for each column and 16 rows. Their order is the one in which `ldmatrix.x2` brings them to the lanes
//! that `mma.sp` asks. Source: the published packer of Sparse-MARLIN; CUTLASS's order of metadata.

use super::marlin::{ORDER, reorder, weight};
use super::{PackError, Shape};
use crate::fragment::group;

/// Rows that one row of words and metadata stands for.
pub const TILE_ROWS: usize = 32;
/// Columns of a tile.
pub const TILE_COLUMNS: usize = 64;
/// Bits of a code; its zero is 8.
const ZERO: i8 = 8;

/// A 2:4 sparse matrix in the layout of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sparse {
    /// Codes of the kept values: `[K / 32][N / 64][lane][4]`.
    pub values: Vec<u32>,
    /// Which values were kept: `[K / 32][2 N]`.
    pub metadata: Vec<u16>,
}

/// Where the sixteen bits of column `column` and rows `16 c ..+ 16` stand, in a matrix of `columns` columns.
pub const fn metadata_place(column: usize, c: usize, columns: usize) -> usize {
    let r = column / 64 * 64 + column % 2 * 2 + column % 8 / 4 + 32 * (column % 4 / 2) + 4 * (column % 64 / 8);
    // In each 2 x 2 of places the two that are not on the diagonal change places.
    let (r, c) = match (r % 2, c % 2) {
        (0, 1) => (r + 1, c - 1),
        (1, 0) => (r - 1, c + 1),
        _ => (r, c),
    };
    c / 2 * 2 * columns + 2 * r + c % 2
}

/// The two indices of a group that are kept, the lower one first: those of its weights that are not zero, and where
/// there are fewer than two of them the lowest of the others.
///
/// # Errors
/// How many weights are not zero, when that is more than two.
fn kept(weights: [i8; 4]) -> Result<(usize, usize), usize> {
    let count = weights.iter().filter(|&&w| w != 0).count();
    if count > 2 {
        return Err(count);
    }
    let (mut first, mut second) = (0, 1);
    let mut lost = usize::MAX;
    for (i, j) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        let here = usize::from(weights[i] != 0) + usize::from(weights[j] != 0);
        if count - here < lost {
            (first, second, lost) = (i, j, count - here);
        }
    }
    Ok((first, second))
}

/// Packs signed codes -8..=7, `codes[k * columns + n]` with zero for what was pruned.
///
/// # Errors
/// Rows that are no whole 32 or columns that are no whole 64, another number of codes, a code out of range, more than
/// two of four consecutive codes of a column that are not zero.
pub fn pack(codes: &[i8], rows: usize, columns: usize) -> Result<Sparse, PackError> {
    let what = "2:4 sparse codes";
    let shape = Shape { what, rows, columns };
    shape.blocks(TILE_COLUMNS)?;
    if !rows.is_multiple_of(TILE_ROWS) {
        return Err(PackError::Columns { what: "2:4 sparse codes along k", columns: rows, block: TILE_ROWS });
    }
    shape.expect(codes.len(), shape.size([rows, columns])?)?;
    if let Some(at) = codes.iter().position(|c| !(-8..=7).contains(c)) {
        return Err(PackError::Code { what, code: codes[at].into(), row: at / columns, column: at % columns });
    }
    // Kept codes, `values[k' * columns + n]`, with the zero point added after the choice: code 0 is a weight of -8.
    let mut values = vec![0u8; rows / 2 * columns];
    let mut metadata = vec![0u16; rows / 16 * columns];
    for row in (0..rows).step_by(4) {
        for column in 0..columns {
            let group: [i8; 4] = std::array::from_fn(|i| codes[(row + i) * columns + column]);
            let (first, second) = kept(group).map_err(|kept| PackError::Dense { kept, row, column })?;
            values[row / 2 * columns + column] = (group[first] + ZERO) as u8;
            values[(row / 2 + 1) * columns + column] = (group[second] + ZERO) as u8;
            let nibble = (first | second << 2) as u16;
            metadata[metadata_place(column, row / 16, columns)] |= nibble << (row % 16);
        }
    }
    let wide = columns / TILE_COLUMNS;
    let words = (0..rows / TILE_ROWS * wide * 128).map(|word| {
        let (tile, lane, j) = (word / 128, word % 128 / 4, word % 4);
        let (a, c) = (tile / wide, tile % wide);
        (0..8).fold(0, |word, n| {
            let e = ORDER[n];
            let (k, _) = weight(lane, j, e);
            let column = TILE_COLUMNS * c + 8 * group(lane).0 + 4 * (e / 4) + j;
            word | u32::from(values[(16 * a + k) * columns + column]) << (4 * n)
        })
    });
    Ok(Sparse { values: words.collect(), metadata })
}

/// Scales of groups along k in half precision: within each 64 columns number `8 i + j` of the result is that of column
/// `8 i + {0, 4, 1, 5, 2, 6, 3, 7}[j]`. Scales of whole columns stay in their order.
///
/// # Errors
/// Columns that are no whole 64, another number of scales.
pub fn pack_group_scales(scales: &[u16], groups: usize, columns: usize) -> Result<Vec<u16>, PackError> {
    reorder("scales of groups", 64, scales, (groups, columns), |p| p / 8 * 8 + p % 8 / 2 + 4 * (p % 2))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use trine_testkit::npz::Npz;

    use super::*;

    #[test]
    fn equals_the_published_packer() {
        let golden = Npz::open("cuda/g_marlin_trirun_pack.npz");
        let packed = pack(&golden.i8("w24"), 256, 256).expect("a layout");
        let values: Vec<u32> = golden.i32("B24").iter().map(|&w| w as u32).collect();
        assert_eq!(packed.values, values);
        let metadata: Vec<u16> = golden.i16("meta_reordered").iter().map(|&w| w as u16).collect();
        assert_eq!(packed.metadata, metadata);
    }

    #[test]
    fn places_of_metadata_are_a_bijection() {
        for (columns, rows) in [(64, 32), (192, 96)] {
            let count = columns * rows / 16;
            let places: HashSet<usize> =
                (0..columns).flat_map(|n| (0..rows / 16).map(move |c| metadata_place(n, c, columns))).collect();
            assert_eq!((places.len(), places.iter().max()), (count, Some(&(count - 1))));
        }
    }

    /// The dense codes of a packed matrix.
    fn unpack(packed: &Sparse, rows: usize, columns: usize) -> Vec<i8> {
        let mut kept = vec![i8::MAX; rows / 2 * columns];
        for (at, word) in packed.values.iter().enumerate() {
            let (tile, lane, j) = (at / 128, at % 128 / 4, at % 4);
            let (a, c) = (tile / (columns / 64), tile % (columns / 64));
            let (g, t) = (lane / 4, lane % 4);
            for n in 0..8 {
                let k = 16 * a + 2 * t + n / 4 + 8 * (n % 2);
                let column = 64 * c + 8 * g + 4 * (n % 4 / 2) + j;
                let code = (word >> (4 * n) & 15) as i8 - 8;
                assert_eq!(kept[k * columns + column], i8::MAX, "two in one place");
                kept[k * columns + column] = code;
            }
        }
        let mut dense = vec![0; rows * columns];
        for row in (0..rows).step_by(4) {
            for column in 0..columns {
                let bits = packed.metadata[metadata_place(column, row / 16, columns)];
                let nibble = usize::from(bits >> (row % 16) & 15);
                let (first, second) = (nibble & 3, nibble >> 2);
                assert!(first < second);
                dense[(row + first) * columns + column] = kept[row / 2 * columns + column];
                dense[(row + second) * columns + column] = kept[(row / 2 + 1) * columns + column];
            }
        }
        dense
    }

    #[test]
    fn negative_weights_code_zero_and_empty_groups_stay_where_they_are() {
        let (rows, columns) = (96, 192);
        let mut codes = vec![0i8; rows * columns];
        for (at, four) in (0..rows * columns / 4).enumerate() {
            let (row, column) = (four / columns * 4, four % columns);
            // None, one or two of four, in all places; -8 has code 0.
            let mut put = |i: usize, code: i8| codes[(row + i % 4) * columns + column] = code;
            match at % 5 {
                0 => {}
                1 => put(at / 5, -8),
                2 => put(at / 5, 7),
                3 => {
                    put(at / 5, -8);
                    put(at / 5 + 1 + at / 20 % 3, -1);
                }
                _ => {
                    put(at / 5, -3);
                    put(at / 5 + 1 + at / 20 % 3, 5);
                }
            }
        }
        let packed = pack(&codes, rows, columns).expect("a layout");
        assert_eq!(unpack(&packed, rows, columns), codes);
    }

    #[test]
    fn scales_of_groups_lie_where_words_j_and_j_plus_4_meet() {
        let scales: Vec<u16> = (0..128).collect();
        let packed = pack_group_scales(&scales, 1, 128).expect("an order");
        assert_eq!(packed[..10], [0, 4, 1, 5, 2, 6, 3, 7, 8, 12]);
        assert_eq!(packed[64..66], [64, 68]);
        assert_eq!(packed.iter().collect::<HashSet<_>>().len(), 128);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut codes = vec![0; 32 * 64];
        for row in 4..7 {
            codes[row * 64 + 5] = 1;
        }
        let error = pack(&codes, 32, 64).expect_err("three of four");
        assert_eq!(error.to_string(), "2:4 sparse: 3 of the four weights of column 5 from row 4 on are not zero");
        codes[0] = 8;
        assert!(pack(&codes, 32, 64).is_err());
        assert!(pack(&[0; 64 * 16], 16, 64).is_err());
        assert!(pack(&[0; 32 * 32], 32, 32).is_err());
        assert!(pack(&[], 32, usize::MAX & !63).is_err());
    }
}
