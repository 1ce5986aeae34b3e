//! TriRun's layout of two-bit weights for kernels with half-precision activations: MARLIN's tiles with twice the
//! weights in a word.
//!
//! Codes 0, 1, 2 stand for -1, 0, +1 and 3 for +2. A tile of 16 rows and 64 columns has 64 words, two for each lane:
//!
//! ```text
//! word (a, 64 c + 2 l + h), bits 2 f..2 f + 2 = code[k][col],  j = 2 h + f % 2,  n = f / 2
//! ```
//!
//! with `k` and `col` of nibble `n` of word `j` as in [`super::marlin`]. In the paired form two tiles one above the
//! other share four words of each lane, so that one load of 16 bytes brings 32 rows. Source: the TriTera paper, section
//! 4.

use super::marlin::{ORDER, TILE_COLUMNS, TILE_ROWS, weight};
use super::{Codes, PackError, Shape};

/// Words of a tile.
pub const TILE_WORDS: usize = 64;
/// The code of weight zero.
pub const ZERO: u8 = 1;

/// One word: lane's word `h` of the tile in row `a` and column `c` of tiles.
fn word(codes: &Codes, (a, c): (usize, usize), lane: usize, h: usize) -> u32 {
    (0..16).fold(0, |word, f| {
        let (k, column) = weight(lane, 2 * h + f % 2, ORDER[f / 2]);
        word | codes.at((TILE_ROWS * a + k, TILE_COLUMNS * c + column)) << (2 * f)
    })
}

/// A matrix of codes 0..=3.
fn view(codes: &[u8], rows: usize, columns: usize) -> Result<Codes<'_>, PackError> {
    let shape = Shape { what: "2-bit codes", rows, columns };
    Codes::new(shape, codes, ZERO, 3)
}

/// Packs codes 0..=3, `codes[k * columns + n]`, into `[tile row][tile column][lane][2]`. Rows and columns are filled up
/// to whole tiles with weights of zero.
///
/// # Errors
/// Another number of codes, a code above 3, a matrix beyond all memory.
pub fn pack(codes: &[u8], rows: usize, columns: usize) -> Result<Vec<u32>, PackError> {
    let codes = view(codes, rows, columns)?;
    let (tall, wide) = (rows.div_ceil(TILE_ROWS), columns.div_ceil(TILE_COLUMNS));
    let words = codes.shape.size([tall, wide, TILE_WORDS])?;
    Ok((0..words)
        .map(|at| {
            let (tile, lane, h) = (at / TILE_WORDS, at % TILE_WORDS / 2, at % 2);
            word(&codes, (tile / wide, tile % wide), lane, h)
        })
        .collect())
}

/// Packs codes as [`pack`] does, two tiles one above the other together: `[pair of tile rows][tile
/// column][lane][tile][2]`.
///
/// # Errors
/// Those of [`pack`].
pub fn pack_pairs(codes: &[u8], rows: usize, columns: usize) -> Result<Vec<u32>, PackError> {
    const PAIR: usize = 2 * TILE_WORDS;
    let codes = view(codes, rows, columns)?;
    let (tall, wide) = (rows.div_ceil(2 * TILE_ROWS), columns.div_ceil(TILE_COLUMNS));
    let words = codes.shape.size([tall, wide, PAIR])?;
    Ok((0..words)
        .map(|at| {
            let (pair, lane, upper, h) = (at / PAIR, at % PAIR / 4, at % 4 / 2, at % 2);
            word(&codes, (2 * (pair / wide) + upper, pair % wide), lane, h)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use trine_testkit::npz::Npz;

    use super::*;

    #[test]
    fn equals_the_published_packer() {
        let golden = Npz::open("cuda/g_marlin_trirun_pack.npz");
        let packed = pack(&golden.u8("q2"), 256, 256).expect("a layout");
        let expected: Vec<u32> = golden.i32("B2").iter().map(|&w| w as u32).collect();
        assert_eq!(packed, expected);
    }

    /// The codes of a packed matrix, `found[k * width + n]`.
    fn unpack(packed: &[u32], (tall, wide): (usize, usize), paired: bool) -> Vec<u8> {
        let mut found = vec![u8::MAX; tall * 16 * wide * 64];
        for a in 0..tall {
            for c in 0..wide {
                for lane in 0..32 {
                    for h in 0..2 {
                        let at = if paired {
                            ((a / 2 * wide + c) * 32 + lane) * 4 + 2 * (a % 2) + h
                        } else {
                            (a * wide + c) * TILE_WORDS + 2 * lane + h
                        };
                        for f in 0..16 {
                            let (register, half) = (f / 2 % 4 % 2, f / 2 / 4);
                            let (k, column) = crate::fragment::half_b(lane, register, half);
                            let column = 16 * (2 * h + f % 2) + column + 8 * (f / 2 % 4 / 2);
                            let place = (16 * a + k) * 64 * wide + 64 * c + column;
                            assert_eq!(found[place], u8::MAX, "two codes in one place");
                            found[place] = (packed[at] >> (2 * f) & 3) as u8;
                        }
                    }
                }
            }
        }
        found
    }

    #[test]
    fn every_code_is_found_again_in_both_forms() {
        let (rows, columns) = (17, 65);
        let codes: Vec<u8> = (0..rows * columns).map(|i| (i * 7 / 3 % 4) as u8).collect();
        let single = pack(&codes, rows, columns).expect("a layout");
        let paired = pack_pairs(&codes, rows, columns).expect("a layout");
        assert_eq!((single.len(), paired.len()), (4 * 64, 2 * 128));
        for found in [unpack(&single, (2, 2), false), unpack(&paired, (2, 2), true)] {
            for (at, &code) in found.iter().enumerate() {
                let (k, n) = (at / 128, at % 128);
                let inside = k < rows && n < columns;
                let expected = if inside { codes[k * columns + n] } else { ZERO };
                assert_eq!(code, expected, "row {k}, column {n}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let error = pack_pairs(&[4], 1, 1).expect_err("a code");
        assert_eq!(error.to_string(), "2-bit codes: code 4 at row 0, column 0");
        assert!(pack(&[0; 3], 2, 2).is_err());
        assert!(pack(&[], 2, usize::MAX).is_err());
    }
}
