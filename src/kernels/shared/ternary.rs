//! Ternary rows without block scales, times int8 activation rows: the product behind I2_S, TL1 and TL2.
//!
//! Weights: rows of 128-blocks, 32 bytes each, code + 1 of element `e` at shift `6 - 2 (e / 32)` of byte
//! `e % 32` (the order of I2_S, so its rows are used where they lie); a last partial block is filled
//! with code 0. Activations: `[a f32][S i32][q int8, padded with zeros to whole blocks]`.
//!
//! `out = ((f32) D - (f32) S) / a`, `D = sum (code + 1) q`: every sum is an exact integer, so any order
//! gives the bits of [`trine_formats::types::ternary::tail`], whose last factor the caller applies.

use trine_formats::types::ternary::{ActScale, quantize_i2_s, quantize_tl};

/// Weights per block.
pub const BLOCK: usize = 128;
/// Bytes per block.
pub const BYTES: usize = 32;
/// `a` and `S` before the int8 values of an activation row.
pub(crate) const HEAD: usize = 8;

/// Which of the two activation quantizers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantizer {
    /// I2_S: rows are scaled by at least 1e-5.
    Floored,
    /// TL1, TL2: no floor.
    Exact,
}

/// Bytes of a weight row of `n` codes.
pub fn row_bytes(n: usize) -> usize {
    n.div_ceil(BLOCK) * BYTES
}

/// Bytes of an activation row of `n` values.
pub fn act_bytes(n: usize) -> usize {
    HEAD + n.next_multiple_of(BLOCK)
}

/// Packs one row of codes -1, 0, +1.
///
/// # Panics
/// When `out` is not [`row_bytes`] long.
pub fn pack_row(codes: &[i8], out: &mut [u8]) {
    assert_eq!(out.len(), row_bytes(codes.len()));
    for (block, out) in codes.chunks(BLOCK).zip(out.chunks_exact_mut(BYTES)) {
        for (p, byte) in out.iter_mut().enumerate() {
            *byte = (0..4).fold(0, |b, g| b << 2 | (block.get(32 * g + p).copied().unwrap_or(0) + 1) as u8);
        }
    }
}

/// The codes of a row of [`pack_row`].
pub fn unpack_row(row: &[u8], codes: &mut [i8]) {
    for (block, bytes) in codes.chunks_mut(BLOCK).zip(row.chunks_exact(BYTES)) {
        for (i, code) in block.iter_mut().enumerate() {
            *code = (bytes[i % 32] >> (6 - 2 * (i / 32)) & 3) as i8 - 1;
        }
    }
}

/// Quantizes one activation row.
///
/// # Panics
/// When `out` is not [`act_bytes`] long.
pub fn quantize_act(rule: Quantizer, x: &[f32], out: &mut [u8]) {
    assert_eq!(out.len(), act_bytes(x.len()));
    let mut q = vec![0i8; x.len()];
    let ActScale { a, sum } = match rule {
        Quantizer::Floored => quantize_i2_s(x, &mut q),
        Quantizer::Exact => quantize_tl(x, &mut q),
    };
    out[..4].copy_from_slice(&a.to_le_bytes());
    out[4..HEAD].copy_from_slice(&sum.to_le_bytes());
    out[HEAD..].fill(0);
    for (to, q) in out[HEAD..].iter_mut().zip(q) {
        *to = q as u8;
    }
}
