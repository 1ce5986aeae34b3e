//! Q2_K: two bits, in groups of 16 with a scale and a minimum of four bits each.
//!
//! Block of a group of rows, 1344 bytes, the size that 16 blocks have in the file:
//!
//! ```text
//! byte   0                32                  64            320
//!        | d: f16 per row | dmin: f16 per row | 4 x 64 B    | 16 x 64 B of codes
//! scales: line g, row r   = bytes 4g .. 4g + 3 of the scales of row r, minima in the high nibbles
//! codes : line k, row r   = bytes 4k .. 4k + 3 of the codes of row r, both as in the file
//! ```
//!
//! The two bits p of line 8h + 4i + c belong to group 8h + 2p + i: the lines of one h and i are a set of four
//! groups. The only chain of a row is that of its blocks, so all sums of a block may go to one integer.

use trine_formats::types::{Part, TypeId, info};

use super::{BLOCK, Q8_K, ROWS, count_rows};
use crate::Isa;
use crate::proof::Needs;
use crate::shared::packed::{Arranged, Encoding, Layout, Multiply};

/// Offsets in a block of the file.
const FILE: usize = info::Q2_K.bytes;
const FILE_CODES: usize = 16;
const FILE_D: usize = 80;
/// Offsets in a block of the group.
pub(crate) const DMIN: usize = 32;
pub(crate) const SCALES: usize = 64;
pub(crate) const CODES: usize = 320;
/// Bytes of a block of the group.
pub(crate) const BYTES: usize = ROWS * FILE;
const _: () = assert!(CODES == SCALES + FILE_CODES * ROWS && CODES + 1024 == BYTES);

/// Arranged activations of a block: the quants as they are, the sums of groups (0, 2), (1, 3), (4, 6) .. as pairs of
/// i16, the scale.
pub(crate) const ACT: usize = 320;
pub(crate) const SUMS: usize = 256;
pub(crate) const SCALE: usize = 288;

/// The layout with the kernel of an instruction set.
pub(crate) const fn layout(needs: Needs, multiply: Multiply, tile: usize) -> Layout {
    Layout {
        types: &[TypeId::Q2_K],
        needs,
        name: "q2_k x16",
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: |n| n / BLOCK * BYTES,
        pack,
        acts: Arranged::Q8K(TypeId::Q2_K),
        act_bytes,
        arrange,
        multiply,
        tile,
    }
}

/// Up to [`ROWS`] rows of the file.
fn pack(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = n / BLOCK * FILE;
    let rows = count_rows(w, row_bytes);
    if rows == 0 {
        return true;
    }
    for (b, out) in out.chunks_exact_mut(BYTES).enumerate() {
        for r in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let block = &w[r.min(rows - 1) * row_bytes + b * FILE..][..FILE];
            out[2 * r..][..2].copy_from_slice(&block[FILE_D..][..2]);
            out[DMIN + 2 * r..][..2].copy_from_slice(&block[FILE_D + 2..]);
            for (k, dword) in block[..FILE_D].as_chunks::<4>().0.iter().enumerate() {
                out[SCALES + 64 * k + 4 * r..][..4].copy_from_slice(dword);
            }
        }
    }
    true
}

/// An odd number of cache lines: rows of a tile then do not fall on the same tile sets of the cache.
pub(crate) fn act_bytes(n: usize) -> usize {
    let lines = n / BLOCK * (ACT / 64);
    64 * (lines | 1)
}

fn arrange(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        out[..SUMS].copy_from_slice(&act[info::Q8_K.at(Part::Codes)..info::Q8_K.at(Part::Sums)]);
        let sums = out[SUMS..SCALE].as_chunks_mut::<8>().0;
        for (out, sums) in sums.iter_mut().zip(act[info::Q8_K.at(Part::Sums)..].as_chunks::<8>().0) {
            let [a, b, c, d, e, f, g, h] = *sums;
            *out = [a, b, e, f, c, d, g, h];
        }
        out[SCALE..][..4].copy_from_slice(&act[..4]);
    }
}
