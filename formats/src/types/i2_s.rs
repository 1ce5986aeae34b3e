//! I2_S of bitnet.cpp: four 2-bit codes to a byte, one scale for the whole tensor.
//!
//! ```text
//! byte  0              31 32             63         K*M/4    K*M/4+4        K*M/4+32
//!       +----------------+-----------------+---//---+----------+--------------+
//!       | weights 0..128 | weights 128..256|        | scale f32| 28 zero bytes|    K columns, M rows,
//!       +----------------+-----------------+---//---+----------+--------------+    rows one after the other
//!
//! bits of byte p of 32:   7 6   5 4     3 2     1 0
//!                          p   p + 32  p + 64  p + 96      code 0, 1, 2 = -1, 0, +1 times the scale
//! ```
//!
//! Code 3 is never written and stands for nothing. This is the layout of the published models and of
//! every writer but one: bitnet.cpp on ARM since November 2025 takes blocks of 64 weights in 16 bytes
//! ([`Interleave::Arm64`]), with the same shifts. Nothing in a file tells the two apart, so the second
//! must be asked for. Rows that are no whole number of blocks are refused: bitnet.cpp writes them, but its
//! kernel reads each row from a byte where it does not start.
//!
//! The scale stands at `K*M/4`, also where that is no multiple of 32.

use super::ternary_layout::{BadCode, TAIL, TernaryError};
use super::{TypeId, TypeInfo, per_tensor};

/// Weights per block of the usual layout.
const BLOCK: usize = 128;
/// Bytes of such a block.
const BYTES: usize = 32;
const _: () = assert!(BYTES * 4 == BLOCK);

/// I2_S in the registry.
pub const INFO: TypeInfo = per_tensor(TypeId::I2_S, "i2_s", BLOCK, BYTES);

/// Which weights share a byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Interleave {
    /// Blocks of 128 weights, those 32 apart share a byte: every published file.
    #[default]
    Usual,
    /// Blocks of 64 weights, those 16 apart share a byte: bitnet.cpp on ARM since November 2025.
    Arm64,
}

impl Interleave {
    /// Weights per block.
    pub fn block(self) -> usize {
        match self {
            Interleave::Usual => BLOCK,
            Interleave::Arm64 => BLOCK / 2,
        }
    }

    pub(super) fn check(self, columns: usize) -> Result<(), TernaryError> {
        let multiple = self.block();
        if columns.is_multiple_of(multiple) {
            return Ok(());
        }
        Err(TernaryError::Columns { ty: TypeId::I2_S, columns, multiple })
    }
}

/// Size of a tensor: `K*M/4 + 32`.
pub fn tensor_bytes(columns: u64, rows: u64) -> Option<u64> {
    (columns.checked_mul(rows)? / 4).checked_add(TAIL as u64)
}

fn row_bytes(row: usize, columns: usize) -> std::ops::Range<usize> {
    row * columns / 4..(row + 1) * columns / 4
}

/// Unpacks one row of whole blocks.
pub(super) fn unpack_row(interleave: Interleave, row: usize, data: &[u8], out: &mut [i8]) -> Result<(), BadCode> {
    let (block, stride) = (interleave.block(), interleave.block() / 4);
    let bytes = &data[row_bytes(row, out.len())];
    let mut damaged = 0;
    for (bytes, out) in bytes.chunks_exact(stride).zip(out.chunks_exact_mut(block)) {
        for (group, out) in out.chunks_exact_mut(stride).enumerate() {
            for (byte, out) in bytes.iter().zip(out) {
                let code = byte >> (6 - 2 * group) & 3;
                damaged |= code & code >> 1;
                *out = code as i8 - 1;
            }
        }
    }
    if damaged == 0 {
        return Ok(());
    }
    let column = out.iter().position(|&c| c == 2).unwrap_or(0);
    Err(BadCode { column, code: 3 })
}

/// Packs one row of whole blocks into its place.
pub(super) fn pack_row(interleave: Interleave, row: usize, codes: &[i8], data: &mut [u8]) {
    let (block, stride) = (interleave.block(), interleave.block() / 4);
    let bytes = &mut data[row_bytes(row, codes.len())];
    for (bytes, codes) in bytes.chunks_exact_mut(stride).zip(codes.chunks_exact(block)) {
        for (p, byte) in bytes.iter_mut().enumerate() {
            *byte = (0..4).fold(0, |b, g| b << 2 | (codes[g * stride + p] + 1) as u8);
        }
    }
}
