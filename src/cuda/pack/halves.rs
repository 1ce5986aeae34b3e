//! Rows of half floats, or of floats, for products whose lanes are rows: 32 of them side by side, two columns or one to
//! a dword.
//!
//! ```text
//! [tile of 32 rows][column / 2][row % 32]  =  the row's even column in the low half, the odd one in the high half
//! [tile of 32 rows][column][row % 32]      =  a float
//! ```
//!
//! Rows that fill up the last tile, and a column that fills up the last dword, are zeros.

use super::{PackError, Shape};

/// Rows of a tile: the lanes of a warp.
const TILE: usize = 32;

/// Lays out `rows` x `columns` half floats, as the file has them.
///
/// # Errors
/// Data of another length, a matrix beyond all memory.
pub fn halves(data: &[u8], rows: usize, columns: usize) -> Result<Vec<u32>, PackError> {
    side_by_side("f16", data, (rows, columns), 2)
}

/// Lays out `rows` x `columns` floats, as the file has them.
///
/// # Errors
/// Those of [`halves`].
pub fn singles(data: &[u8], rows: usize, columns: usize) -> Result<Vec<u32>, PackError> {
    side_by_side("f32", data, (rows, columns), 4)
}

/// Rows of numbers of 2 or 4 bytes.
fn side_by_side(
    what: &'static str,
    data: &[u8],
    (rows, columns): (usize, usize),
    bytes: usize,
) -> Result<Vec<u32>, PackError> {
    let shape = Shape { what, rows, columns };
    shape.expect(data.len(), shape.size([rows, columns, bytes])?)?;
    let dwords = columns.div_ceil(4 / bytes);
    let mut packed = vec![0; shape.size([rows.div_ceil(TILE), dwords, TILE])?];
    for (row, data) in data.chunks_exact((bytes * columns).max(1)).enumerate() {
        let first = row / TILE * dwords * TILE + row % TILE;
        for (at, bytes) in data.chunks(4).enumerate() {
            let mut dword = [0; 4];
            dword[..bytes.len()].copy_from_slice(bytes);
            packed[first + at * TILE] = u32::from_le_bytes(dword);
        }
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_found_again_and_the_rest_is_zero() {
        let (rows, columns) = (33, 5);
        let half = |row: usize, column: usize| (row * columns + column + 1) as u16;
        let all = (0..rows).flat_map(|row| (0..columns).map(move |column| half(row, column)));
        let data: Vec<u8> = all.flat_map(u16::to_le_bytes).collect();
        let packed = halves(&data, rows, columns).expect("a layout");
        assert_eq!(packed.len(), 2 * 3 * 32);
        for row in 0..64 {
            for column in 0..6 {
                let dword = packed[row / 32 * 96 + column / 2 * 32 + row % 32];
                let there = row < rows && column < columns;
                let expected = if there { half(row, column) } else { 0 };
                assert_eq!((dword >> (column % 2 * 16)) as u16, expected, "{row} {column}");
            }
        }
    }

    #[test]
    fn every_float_is_found_again() {
        let (rows, columns) = (33, 5);
        let data: Vec<u8> = (0..rows * columns).flat_map(|i| (i as u32 + 1).to_le_bytes()).collect();
        let packed = singles(&data, rows, columns).expect("a layout");
        assert_eq!(packed.len(), 2 * 5 * 32);
        for (at, &dword) in packed.iter().enumerate() {
            let (row, column) = (at / 160 * 32 + at % 32, at / 32 % 5);
            let there = row < rows;
            let expected = if there { row * columns + column + 1 } else { 0 };
            assert_eq!(dword as usize, expected, "{row} {column}");
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        assert!(halves(&[0; 3], 1, 2).is_err());
        let huge = halves(&[], usize::MAX, 2).expect_err("a refusal");
        assert!(huge.to_string().contains("more than memory"), "{huge}");
        assert_eq!(halves(&[], 0, 0), Ok(Vec::new()));
    }
}
