//! Activation rows for the exact kernels: what a lane needs of a token stands together.
//!
//! Tokens are filled up to whole eights and columns to whole groups of 256, both with zeros. Of each token and group
//! there are 64 dwords of quants in the order `[t][h][s][j]`: dword `16 t + 8 h + 2 s + j` holds the quants `128 h + 32
//! s + 16 j + 4 t ..+ 4`, so that lane `4 g + t` finds its registers b0 and b1 of eight products (`mma.m16n8k32`, token
//! `g`) in 64 bytes. Scales and sums are `[block][token]`.

use trine_formats::types::num::f16_to_f32;
use trine_formats::types::ternary::ActScale;
use trine_formats::types::{Part, TypeId, TypeInfo, info};

use super::{PackError, Shape};
use crate::fragment::COLUMNS;
use crate::integers::IntegerLayout;

/// Columns whose quants are put in order together.
pub const GROUP: usize = 256;
/// Dwords of such a group.
const DWORDS: usize = GROUP / 4;

/// Quantized activation rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Activations {
    /// Tokens, without those that fill up the last eight.
    pub tokens: usize,
    /// Values per token.
    pub columns: usize,
    /// Quants: `[token][group][64]`.
    pub quants: Vec<u32>,
    /// Scales: `[block][token]`, tokens in whole eights. Of rows for ternary matrices without block scales: the quants
    /// per unit of each token.
    pub scales: Vec<f32>,
    /// Sums of the quants that belong to each scale.
    pub sums: Vec<i32>,
}

/// The dword of a group that holds the quants `4 d ..+ 4` of it.
pub const fn place(d: usize) -> usize {
    let (t, j, s, h) = (d % 4, d / 4 % 2, d / 8 % 4, d / 32);
    16 * t + 8 * h + 2 * s + j
}

impl Activations {
    /// Zeros, with `blocks` scales for each token.
    fn empty(shape: Shape, blocks: usize) -> Result<Activations, PackError> {
        let tokens = shape.size([shape.rows.div_ceil(COLUMNS), COLUMNS])?;
        let quants = shape.size([tokens, shape.columns.div_ceil(GROUP), DWORDS])?;
        let scales = shape.size([tokens, blocks])?;
        Ok(Activations {
            tokens: shape.rows,
            columns: shape.columns,
            quants: vec![0; quants],
            scales: vec![0.0; scales],
            sums: vec![0; scales],
        })
    }

    /// Tokens in whole eights.
    pub fn padded(&self) -> usize {
        self.tokens.next_multiple_of(COLUMNS)
    }

    /// Puts quants, little-endian bytes of `i8`, into the row of a token from a column on that is a multiple of four.
    fn put(&mut self, token: usize, column: usize, quants: &[u8]) {
        let first = token * self.columns.div_ceil(GROUP) * DWORDS;
        for (i, quants) in quants.chunks(4).enumerate() {
            let mut bytes = [0; 4];
            bytes[..quants.len()].copy_from_slice(quants);
            let d = column / 4 + i;
            let at = first + d / DWORDS * DWORDS + place(d % DWORDS);
            self.quants[at] = u32::from_le_bytes(bytes);
        }
    }
}

/// Sum of quants.
fn sum(quants: &[u8]) -> i32 {
    quants.iter().map(|&q| i32::from(q as i8)).sum()
}

/// Lays out activation rows of a type: Q8_K, Q8_0 or Q8_1, `tokens` rows of `columns` values as [`TypeInfo::encode`] makes
/// them. Sums are those of the quants themselves, of Q8_1 the bits of the scaled ones as floats.
///
/// # Errors
/// Another type, rows that are no whole blocks, another length.
pub fn encoded(ty: TypeId, data: &[u8], tokens: usize, columns: usize) -> Result<Activations, PackError> {
    let info: &TypeInfo = match ty {
        TypeId::Q8_K => &info::Q8_K,
        TypeId::Q8_0 => &info::Q8_0,
        TypeId::Q8_1 => &info::Q8_1,
        _ => {
            return Err(PackError::Type { name: ty.to_string() });
        }
    };
    let shape = Shape { what: info.name, rows: tokens, columns };
    let blocks = shape.blocks(info.block)?;
    shape.expect(data.len(), shape.size([tokens, blocks, info.bytes])?)?;
    let mut packed = Activations::empty(shape, blocks)?;
    let padded = packed.padded();
    let codes = info.at(Part::Codes);
    for (at, block) in data.chunks_exact(info.bytes).enumerate() {
        let (token, number) = (at / blocks, at % blocks);
        let quants = &block[codes..codes + info.block];
        packed.put(token, number * info.block, quants);
        packed.scales[number * padded + token] = scale(ty, block);
        packed.sums[number * padded + token] = match ty {
            TypeId::Q8_1 => half(block, info.at(Part::Sums)).to_bits().cast_signed(),
            _ => sum(quants),
        };
    }
    Ok(packed)
}

/// The same for the products of a type of weights: where its definition has chains, columns stand in their order.
///
/// # Errors
/// Those of [`encoded`].
pub fn encoded_for(weights: TypeId, data: &[u8], tokens: usize, columns: usize) -> Result<Activations, PackError> {
    let of_type = || PackError::Type { name: weights.to_string() };
    let act = weights.info().and_then(|info| info.act).ok_or_else(of_type)?;
    if !IntegerLayout::of(weights).is_some_and(|layout| layout.has_chains()) {
        return encoded(act, data, tokens, columns);
    }
    let (block, codes) = (info::Q8_K.bytes, info::Q8_K.at(Part::Codes));
    let mut turned = data.to_vec();
    for (from, to) in data.chunks_exact(block).zip(turned.chunks_exact_mut(block)) {
        for e in 0..GROUP {
            to[codes + 32 * (e % 8) + e / 8] = from[codes + e];
        }
    }
    encoded(act, &turned, tokens, columns)
}

/// The scale at the front of a block: Q8_K has it in single precision, the others in half precision, which single precision
/// holds exactly.
fn scale(ty: TypeId, block: &[u8]) -> f32 {
    match ty {
        TypeId::Q8_K => f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
        _ => half(block, 0),
    }
}

/// A number in half precision.
fn half(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Lays out activation rows for ternary matrices without block scales: `quants` are `tokens` rows of `columns` values,
/// and each token has one scale and one sum, which the quantizer of I2_S or that of TL1 and TL2 gave.
///
/// # Errors
/// Another number of quants or of scales.
pub fn ternary(quants: &[i8], scales: &[ActScale], columns: usize) -> Result<Activations, PackError> {
    let shape = Shape { what: "int8 activations", rows: scales.len(), columns };
    shape.expect(quants.len(), shape.size([scales.len(), columns])?)?;
    let mut packed = Activations::empty(shape, 1)?;
    for (token, scale) in scales.iter().enumerate() {
        let row: Vec<u8> = quants[token * columns..][..columns].iter().map(|&q| q as u8).collect();
        packed.put(token, 0, &row);
        packed.scales[token] = scale.a;
        packed.sums[token] = scale.sum;
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn places_are_a_bijection_and_lanes_find_their_registers() {
        let places: HashSet<usize> = (0..DWORDS).map(place).collect();
        assert_eq!((places.len(), places.iter().max()), (DWORDS, Some(&63)));
        for lane in 0..32 {
            for product in 0..8 {
                for register in 0..2 {
                    let (k, token) = crate::fragment::byte_b(lane, register, 0);
                    let dword = (32 * product + k) / 4;
                    assert_eq!(token, lane / 4);
                    assert_eq!(place(dword), 16 * (lane % 4) + 2 * product + register);
                }
            }
        }
    }

    #[test]
    fn quants_scales_and_sums_of_every_token_are_found_again() {
        let (tokens, columns) = (9, 5 * 32);
        let row = 5 * info::Q8_0.bytes;
        let data: Vec<u8> = (0..tokens * row).map(|i| (i * 37 % 251) as u8).collect();
        let packed = encoded(TypeId::Q8_0, &data, tokens, columns).expect("a layout");
        assert_eq!(packed.padded(), 16);
        assert_eq!(packed.quants.len(), 16 * DWORDS);
        let mut seen = 0;
        for token in 0..tokens {
            for block in 0..5 {
                let bytes = &data[token * row + block * 34..][..34];
                for d in 0..8 {
                    let at = token * DWORDS + place(8 * block + d);
                    assert_eq!(packed.quants[at].to_le_bytes(), bytes[2 + 4 * d..6 + 4 * d]);
                    seen += usize::from(packed.quants[at] != 0);
                }
                let at = block * 16 + token;
                let mut decoded = [0.0; 32];
                info::Q8_0.decode.expect("a decoder")(bytes, &mut decoded);
                let sum: i32 = bytes[2..].iter().map(|&b| i32::from(b as i8)).sum();
                assert_eq!(packed.sums[at], sum);
                let first = f32::from(bytes[2] as i8) * packed.scales[at];
                assert_eq!(first.to_bits(), decoded[0].to_bits());
            }
        }
        let filled = packed.quants.iter().filter(|&&q| q != 0).count();
        assert_eq!(filled, seen, "something stands where nothing should");
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let refused = |data: usize, tokens, columns| {
            encoded(TypeId::Q8_K, &vec![0; data], tokens, columns).expect_err("a refusal").to_string()
        };
        assert_eq!(refused(292, 1, 255), "q8_K: 255 columns are not whole blocks of 256");
        assert_eq!(refused(291, 1, 256), "q8_K: 291 elements, where 1 x 256 take 292");
        assert!(refused(0, usize::MAX, 256).contains("more than memory"));
        assert!(encoded(TypeId::Q4_0, &[], 0, 0).is_err());
        assert!(ternary(&[0; 3], &[ActScale { a: 1.0, sum: 0 }], 4).is_err());
    }
}
