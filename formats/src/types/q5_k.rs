//! Q5_K: 5-bit codes in 8 groups of 32, each with a 6-bit scale and a 6-bit minimum.
//!
//! ```text
//! byte   0        2           4              16         48           176
//!        | d: f16 | dmin: f16 | scales: 12 B | qh: 32 B | qs: 128 B  |   first 16 bytes: see k_affine.rs
//! qs[32 h + l], nibble p = low 4 bits of element 64 h + 32 p + l         (h < 4, p < 2, l < 32)
//! qh[l], bit 2 h + p     = high bit of the same element
//! x[e] = (d * scale_j) * code[e] - (dmin * min_j)                        group j = elements 32 j .. 32 j + 31
//! ```

use super::grid::{Grid, Levels, whole, whole_mut};
use super::integers::IntegerForm;
use super::k_affine::{self, GROUP, HEADER, Search};
use super::k_block::{self, BLOCK};
use super::lanes::{Portable, Simd};
use super::q4_k::{pack_nibbles, unpack_nibbles};
use super::search::AffineGrid;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 176;
const QS: usize = HEADER + BLOCK / 8;
const _: () = assert!(QS + BLOCK / 2 == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Min, Format::F16, 2),
        Field::new(Part::GroupScales, Format::Bits, 4),
        Field::new(Part::HighBits, Format::Bits, HEADER),
        Field::new(Part::Codes, Format::Bits, QS),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q5_K, "q5_K", BLOCK, BYTES)
};

/// Codes under scales and minima that are decided.
pub(super) const GRID: Grid = Grid {
    group: GROUP,
    levels: Levels::Even { lowest: 0, count: 32 },
    steps: |block, steps| k_affine::read_steps(&block[..HEADER], steps),
    place: |codes, block| pack_codes(whole(codes), whole_mut(block)),
};

pub(super) use super::k_affine::MULTIPLES;

const SEARCH: Search = Search {
    plain: AffineGrid { top: 31.0, from: -0.5, step: 0.1, last: 15 },
    important: AffineGrid { top: 31.0, from: -0.9, step: 0.05, last: 36 },
    cut_wrapped: true,
};

fn unpack_codes(block: &[u8; BYTES]) -> [u8; BLOCK] {
    let mut codes = unpack_nibbles(&block[QS..]);
    for (p, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (c, high) in codes.iter_mut().zip(&block[HEADER..QS]) {
            *c |= (high >> p & 1) << 4;
        }
    }
    codes
}

#[inline(always)]
fn pack_codes(codes: &[u8; BLOCK], block: &mut [u8; BYTES]) {
    let mut high = [0; QS - HEADER];
    for codes in codes.as_chunks::<32>().0.iter().rev() {
        for (high, c) in high.iter_mut().zip(codes) {
            *high = *high << 1 | c >> 4;
        }
    }
    block[HEADER..QS].copy_from_slice(&high);
    pack_nibbles(codes, &mut block[QS..]);
}

/// Codes in groups with minima.
pub(super) const INTEGERS: IntegerForm = k_affine::integers(32, |_, block, to| {
    k_affine::take_apart(block, &unpack_codes(whole(block)), to);
});

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let codes = unpack_codes(block);
        for (j, (step, min)) in k_affine::steps_and_minima(&block[..HEADER]).iter().enumerate() {
            let group = GROUP * j..GROUP * (j + 1);
            for (y, c) in y[group.clone()].iter_mut().zip(&codes[group]) {
                *y = step * f32::from(*c) - min;
            }
        }
    });
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    k_affine::encode_on::<S, BYTES>(simd, (x, importance, row), &SEARCH, encode, pack_codes);
}

fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    k_affine::dot(w, act, unpack_codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_its_own_bits() {
        for e in 0..BLOCK {
            let mut codes = [0; BLOCK];
            codes[e] = 0b1_0110;
            let mut block = [0; BYTES];
            pack_codes(&codes, &mut block);
            let mut expected = [0; BYTES];
            expected[HEADER + e % 32] = 1 << (e / 32);
            expected[QS + 32 * (e / 64) + e % 32] = 0b0110 << (4 * (e % 64 / 32));
            assert_eq!(block, expected, "element {e}");
            assert_eq!(unpack_codes(&block), codes, "element {e}");
        }
    }
}
