//! Where the elements of a matrix lie in the registers of a warp when `mma` and `ldmatrix` are executed.
//!
//! A warp has 32 lanes. Lane `l` belongs to group `g = l / 4` and is thread `t = l % 4` of it; that is how the PTX
//! manual counts too. A register has 32 bits: two f16 numbers or four bytes, the lowest first. `D = A B + C` with A of
//! 16 rows and B of 8 columns; `k` is the column of A and the row of B.
//!
//! Packers put weights where these maps say, the PTX emulator of the tests executes by them: one table for both.
//! Source: PTX ISA, "Matrix multiply-accumulate operation using mma instruction".

/// Lanes of a warp.
pub const LANES: usize = 32;
/// Rows of A and of the result.
pub const ROWS: usize = 16;
/// Columns of B and of the result.
pub const COLUMNS: usize = 8;

/// Row of the group, and thread in it: `(g, t)` of a lane.
#[inline]
pub const fn group(lane: usize) -> (usize, usize) {
    (lane / 4, lane % 4)
}

/// `m16n8k16` on f16: `(row, k)` of number `h` of register `i` (0..4) of A. For `mma.sp.m16n8k32` the same with `k` the
/// index among the kept values.
#[inline]
pub const fn half_a(lane: usize, i: usize, h: usize) -> (usize, usize) {
    let (g, t) = group(lane);
    (g + 8 * (i & 1), 2 * t + h + 8 * (i >> 1))
}

/// `m16n8k16` (`i` in 0..2) and `mma.sp.m16n8k32` (`i` in 0..4) on f16: `(k, column)` of number `h` of register `i` of
/// B.
#[inline]
pub const fn half_b(lane: usize, i: usize, h: usize) -> (usize, usize) {
    let (g, t) = group(lane);
    (2 * t + h + 8 * i, g)
}

/// `m16n8k32` on bytes: `(row, k)` of byte `j` of register `i` (0..4) of A.
#[inline]
pub const fn byte_a(lane: usize, i: usize, j: usize) -> (usize, usize) {
    let (g, t) = group(lane);
    (g + 8 * (i & 1), 4 * t + j + 16 * (i >> 1))
}

/// `m16n8k32` on bytes: `(k, column)` of byte `j` of register `i` (0..2) of B.
#[inline]
pub const fn byte_b(lane: usize, i: usize, j: usize) -> (usize, usize) {
    let (g, t) = group(lane);
    (4 * t + j + 16 * i, g)
}

/// `(row, column)` of register `i` (0..4) of C and D, in all forms.
#[inline]
pub const fn accumulator(lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = group(lane);
    (g + 8 * (i >> 1), 2 * t + (i & 1))
}

/// `mma.sp.m16n8k32` on f16: the lane whose metadata register holds the kept indices of a row, and the bit at which the
/// 16 bits of that row begin in it.
///
/// `selector` (0 or 1) is the instruction's operand, `upper` is true if `k` is 16 or more. Each group of four
/// consecutive `k` has four of these bits, the lowest group first: the lower kept index in the two lowest bits, the
/// higher one above.
#[inline]
pub const fn metadata(row: usize, upper: bool, selector: usize) -> (usize, usize) {
    let lane = 4 * (row % 8) + 2 * selector + upper as usize;
    (lane, 16 * (row / 8))
}

/// `ldmatrix`: which lane's register `i` gets the 32 bits at dword `t` of row `row` of matrix `i`, for the form without
/// `.trans`.
#[inline]
pub const fn matrix_lane(row: usize, dword: usize) -> usize {
    4 * row + dword
}

/// `ldmatrix`: the matrix and the row of it whose address is given by a lane. Of the forms `.x1` and `.x2` only the
/// lanes of the first one and two matrices are asked.
#[inline]
pub const fn matrix_row(lane: usize) -> (usize, usize) {
    (lane / 8, lane % 8)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hash;

    use super::*;

    /// True if the map takes lanes, registers and parts to `count` places, each once.
    fn is_bijection<T: Hash + Eq>(
        (registers, parts): (usize, usize),
        count: usize,
        map: impl Fn(usize, usize, usize) -> T,
    ) -> bool {
        let mut places = HashSet::new();
        for lane in 0..LANES {
            for i in 0..registers {
                for part in 0..parts {
                    places.insert(map(lane, i, part));
                }
            }
        }
        places.len() == count && count == LANES * registers * parts
    }

    #[test]
    fn every_element_lies_in_one_place() {
        assert!(is_bijection((4, 2), 16 * 16, half_a));
        assert!(is_bijection((2, 2), 16 * 8, half_b));
        assert!(is_bijection((4, 2), 32 * 8, half_b));
        assert!(is_bijection((4, 4), 16 * 32, byte_a));
        assert!(is_bijection((2, 4), 32 * 8, byte_b));
        assert!(is_bijection((4, 1), 16 * 8, |l, i, _| accumulator(l, i)));
        assert!(is_bijection((4, 1), 4 * 8 * 4, |l, i, _| (matrix_row(8 * i + l / 4), l % 4)));
    }

    #[test]
    fn places_of_the_manual() {
        // PTX ISA 9.0, figures of the fragments: the first and last lane and one between.
        assert_eq!([half_a(0, 0, 1), half_a(5, 1, 0), half_a(31, 3, 1)], [(0, 1), (9, 2), (15, 15)]);
        assert_eq!([half_b(5, 1, 1), half_b(31, 3, 1)], [(11, 1), (31, 7)]);
        assert_eq!([byte_a(0, 2, 3), byte_a(6, 1, 1), byte_a(31, 3, 3)], [(0, 19), (9, 9), (15, 31)]);
        assert_eq!([byte_b(6, 1, 2), byte_b(31, 1, 3)], [(26, 1), (31, 7)]);
        assert_eq!([accumulator(1, 1), accumulator(30, 2), accumulator(31, 3)], [(0, 3), (15, 4), (15, 7)]);
    }

    #[test]
    fn metadata_of_a_selector_comes_from_half_of_the_lanes() {
        for selector in 0..2 {
            let places: HashSet<_> =
                (0..16).flat_map(|row| [false, true].map(|upper| metadata(row, upper, selector))).collect();
            assert_eq!(places.len(), 32);
            assert!(places.iter().all(|&(lane, bit)| lane / 2 % 2 == selector && bit % 16 == 0));
        }
        assert_eq!(metadata(11, true, 1), (15, 16));
    }

    #[test]
    fn a_matrix_of_rows_is_the_fragment_of_a() {
        // ldmatrix.x4 of the four quarters of a 16 x 16 matrix of f16 gives A of m16n8k16.
        for lane in 0..LANES {
            for i in 0..4 {
                for h in 0..2 {
                    let (row, k) = half_a(lane, i, h);
                    assert_eq!(matrix_lane(row % 8, k % 8 / 2), lane);
                    assert_eq!((row / 8, k / 8), (i & 1, i >> 1));
                }
            }
        }
    }
}
