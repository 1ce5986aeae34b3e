//! Q4_K: 4-bit codes in 8 groups of 32, each with a 6-bit scale and a 6-bit minimum.
//!
//! ```text
//! byte   0        2           4              16           144
//!        | d: f16 | dmin: f16 | scales: 12 B | qs: 128 B  |      first 16 bytes: see k_affine.rs
//! qs[32 h + l], nibble p = element 64 h + 32 p + l               (h < 4, p < 2, l < 32)
//! x[e] = (d * scale_j) * code[e] - (dmin * min_j)                group j = elements 32 j .. 32 j + 31
//! ```

use super::grid::{Grid, Levels, whole};
use super::integers::IntegerForm;
use super::k_affine::{self, GROUP, HEADER, Search};
use super::k_block::{self, BLOCK};
use super::lanes::{Portable, Simd};
use super::search::AffineGrid;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 144;
const _: () = assert!(HEADER + BLOCK / 2 == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Min, Format::F16, 2),
        Field::new(Part::GroupScales, Format::Bits, 4),
        Field::new(Part::Codes, Format::Bits, HEADER),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q4_K, "q4_K", BLOCK, BYTES)
};

/// Codes under scales and minima that are decided.
pub(super) const GRID: Grid = Grid {
    group: GROUP,
    levels: Levels::Even { lowest: 0, count: 16 },
    steps: |block, steps| k_affine::read_steps(&block[..HEADER], steps),
    place: |codes, block| pack_nibbles(whole(codes), &mut block[HEADER..]),
};

pub(super) use super::k_affine::MULTIPLES;

const SEARCH: Search = Search {
    plain: AffineGrid { top: 15.0, from: -1.0, step: 0.1, last: 20 },
    important: AffineGrid { top: 15.0, from: -0.9, step: 0.05, last: 36 },
    cut_wrapped: false,
};

/// Two codes to a byte, 32 elements apart.
pub(super) fn unpack_nibbles(qs: &[u8]) -> [u8; BLOCK] {
    let mut codes = [0; BLOCK];
    for (codes, q) in codes.as_chunks_mut::<64>().0.iter_mut().zip(qs.as_chunks::<32>().0) {
        for l in 0..32 {
            codes[l] = q[l] & 15;
            codes[l + 32] = q[l] >> 4;
        }
    }
    codes
}

/// The inverse of [`unpack_nibbles`]; only the low four bits of a code are taken.
#[inline(always)]
pub(super) fn pack_nibbles(codes: &[u8; BLOCK], qs: &mut [u8]) {
    for (c, q) in codes.as_chunks::<64>().0.iter().zip(qs.as_chunks_mut::<32>().0) {
        for l in 0..32 {
            q[l] = c[l] & 15 | c[l + 32] << 4;
        }
    }
}

/// Codes in groups with minima.
pub(super) const INTEGERS: IntegerForm = k_affine::integers(16, |_, block, to| {
    k_affine::take_apart(block, &unpack_nibbles(&block[HEADER..]), to);
});

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let groups = k_affine::steps_and_minima(&block[..HEADER]);
        let bytes = block[HEADER..].as_chunks::<32>().0;
        for ((y, q), steps) in y.as_chunks_mut::<64>().0.iter_mut().zip(bytes).zip(groups.chunks_exact(2)) {
            for l in 0..32 {
                y[l] = steps[0].0 * f32::from(q[l] & 15) - steps[0].1;
                y[l + 32] = steps[1].0 * f32::from(q[l] >> 4) - steps[1].1;
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
    k_affine::encode_on::<S, BYTES>(simd, (x, importance, row), &SEARCH, encode, |codes, block| {
        pack_nibbles(codes, &mut block[HEADER..])
    });
}

fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    k_affine::dot(w, act, |block: &[u8; BYTES]| unpack_nibbles(&block[HEADER..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_its_own_nibble() {
        for e in 0..BLOCK {
            let mut codes = [0; BLOCK];
            codes[e] = 13;
            let mut qs = [0; BLOCK / 2];
            pack_nibbles(&codes, &mut qs);
            let mut expected = [0; BLOCK / 2];
            expected[32 * (e / 64) + e % 32] = 13 << (4 * (e % 64 / 32));
            assert_eq!(qs, expected, "element {e}");
            assert_eq!(unpack_nibbles(&qs), codes, "element {e}");
        }
    }

    #[test]
    fn an_exact_block_comes_back() {
        let x: [f32; BLOCK] = std::array::from_fn(|e| 0.5 * (e % 32 % 16) as f32 - 2.0);
        let mut block = [0; BYTES];
        encode(&x, None, &mut block);
        let mut y = [0.0; BLOCK];
        decode(&block, &mut y);
        // The scale 0.5 is stored as 63 times a half float next to 0.5 / 63.
        assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 0.005));
    }
}
