//! Rows of half floats for products whose lanes are rows: 32 of them side by side, two columns to a dword.
//!
//! ```text
//! [tile of 32 rows][column / 2][row % 32]  =  the row's even column in the low half, the odd one in the high half
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
    let shape = Shape {
        what: "f16",
        rows,
        columns,
    };
    shape.expect(data.len(), shape.size([rows, columns, 2])?)?;
    let pairs = columns.div_ceil(2);
    let mut packed = vec![0; shape.size([rows.div_ceil(TILE), pairs, TILE])?];
    for (row, data) in data.chunks_exact((2 * columns).max(1)).enumerate() {
        let first = row / TILE * pairs * TILE + row % TILE;
        for (pair, bytes) in data.chunks(4).enumerate() {
            let mut both = [0; 4];
            both[..bytes.len()].copy_from_slice(bytes);
            packed[first + pair * TILE] = u32::from_le_bytes(both);
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
                assert_eq!(
                    (dword >> (column % 2 * 16)) as u16,
                    expected,
                    "{row} {column}"
                );
            }
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
