//! Activations and scales of kernels with activations in half precision.

use super::marlin::{column_order, reorder};
use super::{PackError, Shape};

/// Number of f16 in a chunk of 16 bytes.
const CHUNK: usize = 8;
/// Columns of a tile of codes.
const TILE_COLUMNS: usize = 64;

/// Rows of `rows` f16 numbers, `halves[token * rows + k]`, filled up to whole chunks of 16 bytes with zeros.
///
/// # Errors
/// Another number of f16.
pub fn activations(halves: &[u16], tokens: usize, rows: usize) -> Result<Vec<u16>, PackError> {
    padded("activations", halves, (tokens, rows), CHUNK)
}

/// Scales of groups along k, `scales[group * columns + n]`: columns filled up to whole tiles of 64 with zeros, and
/// within each 32 columns in the order of MARLIN's scales of columns, so that a lane finds those of its outputs side by
/// side.
///
/// # Errors
/// Another number of scales.
pub fn group_scales(scales: &[u16], groups: usize, columns: usize) -> Result<Vec<u16>, PackError> {
    const WHAT: &str = "scales of groups";
    let padded = padded(WHAT, scales, (groups, columns), TILE_COLUMNS)?;
    let wide = columns.next_multiple_of(TILE_COLUMNS);
    reorder(WHAT, 32, &padded, (groups, wide), column_order)
}

/// Rows filled up to a multiple of `block` with zeros.
fn padded(
    what: &'static str,
    values: &[u16],
    (rows, columns): (usize, usize),
    block: usize,
) -> Result<Vec<u16>, PackError> {
    let shape = Shape { what, rows, columns };
    shape.expect(values.len(), shape.size([rows, columns])?)?;
    let wide = shape.size([columns.div_ceil(block), block])?;
    let mut padded = vec![0; shape.size([rows, wide])?];
    if columns > 0 {
        for (to, from) in padded.chunks_exact_mut(wide).zip(values.chunks_exact(columns)) {
            to[..columns].copy_from_slice(from);
        }
    }
    Ok(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filled_up_with_zeros() {
        let packed = activations(&[1, 2, 3, 4, 5, 6], 2, 3).expect("rows");
        assert_eq!(packed, [1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0]);
        assert!(activations(&[1, 2, 3], 2, 3).is_err());
        assert!(activations(&[], usize::MAX, 0).is_ok_and(|a| a.is_empty()));
        assert!(activations(&[], 0, usize::MAX).is_err());
    }

    #[test]
    fn a_lane_finds_the_scales_of_its_outputs_side_by_side() {
        let (groups, columns) = (2, 70);
        let scales: Vec<u16> = (0..140).map(|s| s + 1).collect();
        let packed = group_scales(&scales, groups, columns).expect("an order");
        assert_eq!(packed.len(), groups * 128);
        for group in 0..groups {
            for (tile, t) in (0..4).flat_map(|tile| (0..4).map(move |t| (tile, t))) {
                // The columns of registers 0 and 1 of lane t in four products of eight columns each.
                for (n, i) in (0..4).flat_map(|n| [(n, 0), (n, 1)]) {
                    let (_, inner) = crate::fragment::accumulator(t, i);
                    let column = 32 * tile + 8 * n + inner;
                    let expected = if column < columns { scales[group * columns + column] } else { 0 };
                    assert_eq!(packed[group * 128 + 32 * tile + 8 * t + 2 * n + i], expected);
                }
            }
        }
    }
}
