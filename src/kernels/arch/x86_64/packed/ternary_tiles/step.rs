//! Products of tiles of tokens with tiles of weights, 64 columns at a time.

use super::super::ternary_bytes::COLUMNS;
use crate::arch::x86_64::tiles::{self, Tiles, Tokens};

/// Columns of a tile, and tiles of a block.
pub(super) const STEP: usize = tiles::ROW;
pub(super) const STEPS: usize = COLUMNS / STEP;

/// Rows of the eight tiles: two of tokens, two of weights, four of sums.
pub(in super::super) fn shapes(tokens: Tokens) -> [u8; 8] {
    let rows = tokens.rows as u8;
    [rows, rows, 16, 16, rows, rows, rows, rows]
}

/// Multiplies `PAIR` or one tile of tokens with two of weights, 64 columns.
///
/// # Safety
/// The tiles are set up as [`Tiles`] asks for; `q[0]`, and with `PAIR` `q[1]`, point at 64 activations of each token of
/// the tile, `stride` bytes apart, and `weights` at a tile each.
#[inline(always)]
pub(in super::super) unsafe fn columns<M: Tiles, const LOWER: bool, const PAIR: bool>(
    m: &mut M,
    q: [*const u8; 2],
    stride: usize,
    weights: [*const u8; 2],
) {
    macro_rules! dot {
        ($c:literal, $a:literal, $b:literal) => {
            if LOWER {
                m.dot_signed::<$c, $a, $b>();
            } else {
                m.dot_signed_by_unsigned::<$c, $a, $b>();
            }
        };
    }
    // SAFETY: the caller has the tokens' rows and two tiles of weights; sums are cleared before the first columns.
    unsafe {
        m.load::<0>(q[0], stride);
        m.load::<2>(weights[0], STEP);
        dot!(4, 0, 2);
        m.load::<3>(weights[1], STEP);
        dot!(5, 0, 3);
        if PAIR {
            m.load::<1>(q[1], stride);
            dot!(6, 1, 2);
            dot!(7, 1, 3);
        }
    }
}

/// # Safety
/// The tiles are set up.
#[inline(always)]
pub(in super::super) unsafe fn clear<M: Tiles, const PAIR: bool>(m: &mut M) {
    // SAFETY: the caller has set the tiles up.
    unsafe {
        m.clear::<4>();
        m.clear::<5>();
        if PAIR {
            m.clear::<6>();
            m.clear::<7>();
        }
    }
}

/// # Safety
/// The tiles are set up; `isums` has room for two tiles, for four with `PAIR`.
#[inline(always)]
pub(in super::super) unsafe fn put_down<M: Tiles, const PAIR: bool>(m: &M, isums: *mut [i32; 256]) {
    // SAFETY: the caller has set the tiles up and has room for four.
    unsafe {
        m.store::<4>(isums.cast());
        m.store::<5>(isums.add(1).cast());
        if PAIR {
            m.store::<6>(isums.add(2).cast());
            m.store::<7>(isums.add(3).cast());
        }
    }
}
