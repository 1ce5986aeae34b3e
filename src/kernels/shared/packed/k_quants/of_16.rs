//! Q6_K and Q3_K: codes with an offset, in groups of 16 with a signed scale.
//!
//! A group of rows holds pairs of blocks (32 times the size of the file's block), the last alone if their number is
//! odd:
//!
//! ```text
//! byte   0                        32
//!        | d of the first: f16 .. | d of the second: f16 .. | first | second |
//! block  | scales, 3 or 4 x 64 B  | 8 parts of codes        |
//! scales: line g, row r = dword g of the scale bytes of row r
//! ```
//!
//! The first two bytes of a row in unit s belong to scale 2s, the others to 2s + 1.

use trine_formats::types::{TypeId, info};

use super::{BLOCK, CHAINS, ROWS, count_rows};
use crate::Isa;

/// Bytes of the scales before a pair of blocks.
const D: usize = 64;

/// True if products take weights with a sign, as ARM's do: codes then are the weights in two's complement, of which
/// those of others exceed them by [`Layout16::OFFSET`].
const SIGNED: bool = cfg!(target_arch = "aarch64");

/// How a type's blocks are laid out.
pub(crate) trait Layout16 {
    const TYPES: &'static [TypeId];
    const NAME: &'static str;
    /// Bytes of a block of the file, and offsets in it: the scales and d.
    const FILE: usize;
    const FILE_SCALES: usize;
    const FILE_D: usize;
    /// Lines of scales, and of a part.
    const SCALE_LINES: usize;
    const PART_LINES: usize;
    /// A weight is a code of the file minus this, the upper bit of a code.
    const OFFSET: i16;
    /// Bits that turn a code of the file into one of the group.
    const FLIPPED: u8 = if SIGNED { Self::OFFSET as u8 } else { 0 };
    /// Offset of the parts in a block, bytes.
    const CODES: usize = 64 * Self::SCALE_LINES;
    /// Bytes of a block, without its d.
    const BYTES: usize = Self::CODES + CHAINS * 64 * Self::PART_LINES;

    /// The lines of a row's block, not yet split into parts: byte e is about element e of the units. Only
    /// as many lines as a part has are used.
    fn lines(block: &[u8]) -> [[u8; 32]; 6];
}

/// A part has 6 lines. Line k has unit k in the low 6 bits; the upper 2 bits of lines 0, 1, 2 are bits 5..4, 3..2,
/// 1..0 of unit 6, those of lines 3, 4, 5 of unit 7.
pub(crate) struct Q6K;

impl Layout16 for Q6K {
    const TYPES: &'static [TypeId] = &[TypeId::Q6_K];
    const NAME: &'static str = "q6_k x16";
    const FILE: usize = info::Q6_K.bytes;
    const FILE_SCALES: usize = 192;
    const FILE_D: usize = 208;
    const SCALE_LINES: usize = 4;
    const PART_LINES: usize = 6;
    const OFFSET: i16 = 32;

    fn lines(block: &[u8]) -> [[u8; 32]; 6] {
        let mut units = [[0; 32]; 8];
        let (low, high) = block[..Self::FILE_SCALES].split_at(BLOCK / 2);
        for (h, units) in units.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            for e in 0..32 {
                let (a, b, high) = (low[64 * h + e], low[64 * h + 32 + e], high[32 * h + e]);
                units[0][e] = a & 15 | (high & 3) << 4;
                units[1][e] = b & 15 | (high >> 2 & 3) << 4;
                units[2][e] = a >> 4 | (high >> 4 & 3) << 4;
                units[3][e] = b >> 4 | (high >> 6) << 4;
            }
        }
        let units = units.map(|unit| unit.map(|code| code ^ Self::FLIPPED));
        let mut lines = [[0; 32]; 6];
        for (k, line) in lines.iter_mut().enumerate() {
            let (own, other, shift) = (&units[k], &units[6 + k / 3], 4 - 2 * (k % 3));
            for e in 0..32 {
                line[e] = own[e] | other[e] >> shift << 6;
            }
        }
        lines
    }
}

/// A part has 3 lines. Line k has unit k in bits 0..2, unit 3 + k in bits 3..5 and two bits of what is left:
///
/// ```text
/// line   bit 7              bit 6
/// 0      unit 6, bit 2      unit 6, bit 1
/// 1      unit 6, bit 0      unit 7, bit 2
/// 2      unit 7, bit 1      unit 7, bit 0
/// ```
pub(crate) struct Q3K;

impl Layout16 for Q3K {
    const TYPES: &'static [TypeId] = &[TypeId::Q3_K];
    const NAME: &'static str = "q3_k x16";
    const FILE: usize = info::Q3_K.bytes;
    const FILE_SCALES: usize = 96;
    const FILE_D: usize = 108;
    const SCALE_LINES: usize = 3;
    const PART_LINES: usize = 3;
    const OFFSET: i16 = 4;

    fn lines(block: &[u8]) -> [[u8; 32]; 6] {
        let mut units = [[0; 32]; 8];
        let (high, low) = block[..Self::FILE_SCALES].split_at(BLOCK / 8);
        for (j, unit) in units.iter_mut().enumerate() {
            for e in 0..32 {
                let low = low[32 * (j / 4) + e] >> (2 * (j % 4)) & 3;
                unit[e] = low | (high[e] >> j & 1) << 2;
            }
        }
        let units = units.map(|unit| unit.map(|code| code ^ Self::FLIPPED));
        let mut lines = [[0; 32]; 6];
        for e in 0..32 {
            let rest = units[6][e] << 3 | units[7][e];
            for k in 0..3 {
                let two = rest >> (4 - 2 * k) & 3;
                lines[k][e] = units[k][e] | units[3 + k][e] << 3 | two << 6;
            }
        }
        lines
    }
}

/// Bytes of a group of rows of `n` weights.
pub(crate) fn group_bytes<C: Layout16>(n: usize) -> usize {
    assert!(D + 2 * C::BYTES == 2 * ROWS * C::FILE);
    let blocks = n / BLOCK;
    blocks.div_ceil(2) * D + blocks * C::BYTES
}

/// Where the d and the rest of block b are.
#[inline(always)]
pub(crate) fn at<C: Layout16>(b: usize) -> (usize, usize) {
    let pair = b / 2 * (D + 2 * C::BYTES);
    (pair + b % 2 * (D / 2), pair + D + b % 2 * C::BYTES)
}

/// Up to [`ROWS`] rows of the file.
pub(crate) fn pack<C: Layout16>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = n / BLOCK * C::FILE;
    let rows = count_rows(w, row_bytes);
    if rows == 0 {
        return true;
    }
    for b in 0..n / BLOCK {
        let (d, rest) = at::<C>(b);
        for r in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let block = &w[r.min(rows - 1) * row_bytes + b * C::FILE..][..C::FILE];
            out[d + 2 * r..][..2].copy_from_slice(&block[C::FILE_D..][..2]);
            let out = &mut out[rest..][..C::BYTES];
            for g in 0..C::SCALE_LINES {
                out[64 * g + 4 * r..][..4].copy_from_slice(&block[C::FILE_SCALES + 4 * g..][..4]);
            }
            for (k, q) in C::lines(block).iter().enumerate().take(C::PART_LINES) {
                for l in 0..CHAINS {
                    let to = C::CODES + 64 * (C::PART_LINES * l + k) + 4 * r;
                    out[to..][..4].copy_from_slice(&[q[l], q[l + 8], q[l + 16], q[l + 24]]);
                }
            }
        }
    }
    true
}
