//! Q4_K and Q5_K, whose scales are of 32 elements.
//!
//! Block of a group, 16 times the size of the file's block:
//!
//! ```text
//! byte   0                32                  64                           256
//!        | d: f16 per row | dmin: f16 per row | 3 x 64 B of packed scales  | 8 parts of codes
//! scales: line k, row r = dword k of the 12 scale bytes of row r
//! ```
//!
//! Part l, 4 or 5 lines of 64 bytes. Byte i of row r in a line p < 4 is about unit 2p (even) and 2p + 1 (odd):
//!
//! ```text
//! Q4_K: even | odd << 4                       as in the file
//! Q5_K: even | (odd >> 2) << 5,  line 4: (odd & 3) << 2p, for all p together
//! ```

use trine_formats::types::{TypeId, info};

use super::{BLOCK, CHAINS, ROWS, count_rows};
use crate::Isa;

/// d, dmin and packed scales of a block of the file.
const FILE_HEADER: usize = 16;
/// Offsets in a block of the group.
pub(crate) const DMIN: usize = 32;
pub(crate) const SCALES: usize = 64;
pub(crate) const CODES: usize = 256;
const _: () = assert!(CODES == ROWS * FILE_HEADER);

/// How a type's blocks are laid out.
pub(crate) trait Layout32 {
    const TYPES: &'static [TypeId];
    const NAME: &'static str;
    /// Bytes of a block of the file.
    const FILE: usize;
    /// Bytes of a part.
    const PART: usize = ROWS * (Self::FILE - FILE_HEADER) / CHAINS;

    /// The lines of a row's block, not yet split into parts: byte e is about element e of the units. `q`:
    /// the file's block from its codes on. Only as many lines as a part has are used.
    fn lines(q: &[u8]) -> [[u8; 32]; 5];
}

pub(crate) struct Q4K;
pub(crate) struct Q5K;

impl Layout32 for Q4K {
    const TYPES: &'static [TypeId] = &[TypeId::Q4_K];
    const NAME: &'static str = "q4_k x16";
    const FILE: usize = info::Q4_K.bytes;

    fn lines(q: &[u8]) -> [[u8; 32]; 5] {
        let mut lines = [[0; 32]; 5];
        lines.as_flattened_mut()[..128].copy_from_slice(q);
        lines
    }
}

impl Layout32 for Q5K {
    const TYPES: &'static [TypeId] = &[TypeId::Q5_K];
    const NAME: &'static str = "q5_k x16";
    const FILE: usize = info::Q5_K.bytes;

    fn lines(q: &[u8]) -> [[u8; 32]; 5] {
        let mut lines = [[0; 32]; 5];
        let (fifth, q) = q.split_at(32);
        for (p, q) in q.as_chunks::<32>().0.iter().enumerate() {
            for e in 0..32 {
                let fifth = fifth[e] >> (2 * p);
                let (even, odd) = (q[e] & 15 | (fifth & 1) << 4, q[e] >> 4 | (fifth & 2) << 3);
                lines[p][e] = even | (odd >> 2) << 5;
                lines[4][e] |= (odd & 3) << (2 * p);
            }
        }
        lines
    }
}

/// Bytes of a block of a group.
pub(crate) const fn bytes<C: Layout32>() -> usize {
    ROWS * C::FILE
}

/// Up to [`ROWS`] rows of the file.
pub(crate) fn pack<C: Layout32>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = n / BLOCK * C::FILE;
    let rows = count_rows(w, row_bytes);
    if rows == 0 {
        return true;
    }
    for (b, out) in out.chunks_exact_mut(bytes::<C>()).enumerate() {
        for r in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let block = &w[r.min(rows - 1) * row_bytes + b * C::FILE..][..C::FILE];
            out[2 * r..][..2].copy_from_slice(&block[..2]);
            out[DMIN + 2 * r..][..2].copy_from_slice(&block[2..4]);
            for k in 0..3 {
                out[SCALES + 64 * k + 4 * r..][..4].copy_from_slice(&block[4 + 4 * k..][..4]);
            }
            let lines = C::lines(&block[FILE_HEADER..]);
            for (p, q) in lines.iter().enumerate().take(C::PART / 64) {
                for l in 0..CHAINS {
                    let to = CODES + C::PART * l + 64 * p + 4 * r;
                    out[to..][..4].copy_from_slice(&[q[l], q[l + 8], q[l + 16], q[l + 24]]);
                }
            }
        }
    }
    true
}
