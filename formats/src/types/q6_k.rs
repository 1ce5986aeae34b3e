//! Q6_K: 6-bit codes in 16 groups of 16, each with a signed 8-bit scale.
//!
//! ```text
//! byte   0            128          192               208      210
//!        | ql: 128 B  | qh: 64 B   | scales: 16 x i8 | d: f16 |
//! element 128 h + 32 p + l                                  (h < 2, p < 4, l < 32)
//!   low 4 bits : ql[64 h + 32 (p % 2) + l], nibble p / 2
//!   high 2 bits: qh[32 h + l], 2-bit field p
//! x[e] = (d * scale_j) * (code[e] - 32)                     group j = elements 16 j .. 16 j + 15
//! ```

use super::grid::{Grid, Levels, Multiples, multiples_of, whole, whole_mut, without_minima};
use super::integers::IntegerForm;
use super::k_block::{self, BLOCK, SuperBlocks};
use super::k_symmetric::{self, Symmetric};
use super::lanes::{Portable, Simd};
use super::num::{f16_at, nearest_int, put_f16, signed_extreme};
use super::search::{GROUP_EPS, SymmetricFit, fit_symmetric, side_by_side};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 210;
const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const QH: usize = BLOCK / 2;
const SCALES: usize = QH + BLOCK / 4;
const D: usize = SCALES + GROUPS;
const _: () = assert!(D + 2 == BYTES);

/// The code of zero.
const HALF: i32 = 32;

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Codes, Format::Bits, 0),
        Field::new(Part::HighBits, Format::Bits, QH),
        Field::new(Part::GroupScales, Format::I8, SCALES),
        Field::new(Part::Scale, Format::F16, D),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q6_K, "q6_K", BLOCK, BYTES)
};

/// Codes under scales that are decided.
pub(super) const GRID: Grid = Grid {
    group: GROUP,
    levels: Levels::Even { lowest: -HALF as i16, count: 2 * HALF as u16 },
    steps: |block, steps| {
        let block: &[u8; BYTES] = whole(block);
        multiples_of(f16_at(block, D), &unpack_scales(block), steps);
    },
    place: |codes, block| pack_codes(whole(codes), whole_mut(block)),
};

/// The scales of the groups.
pub(super) const MULTIPLES: Multiples = Multiples {
    scales: (i8::MIN as i16, i8::MAX as i16),
    minima: 0,
    read: |block, multiples| without_minima(&unpack_scales(whole(block)), multiples),
    write: |multiples, block| {
        for (byte, [scale, _]) in block[SCALES..D].iter_mut().zip(multiples) {
            *byte = *scale as u8;
        }
    },
};

/// The signed codes of a block, -32..=31.
fn unpack_codes(block: &[u8; BYTES]) -> [i8; BLOCK] {
    let mut codes = [0; BLOCK];
    let bytes = block[..QH].as_chunks::<64>().0.iter().zip(block[QH..SCALES].as_chunks::<32>().0);
    for (codes, (ql, qh)) in codes.as_chunks_mut::<128>().0.iter_mut().zip(bytes) {
        for l in 0..32 {
            let (a, b, h) = (ql[l], ql[l + 32], qh[l]);
            codes[l] = (a & 15 | (h & 3) << 4) as i8 - HALF as i8;
            codes[l + 32] = (b & 15 | (h >> 2 & 3) << 4) as i8 - HALF as i8;
            codes[l + 64] = (a >> 4 | (h >> 4 & 3) << 4) as i8 - HALF as i8;
            codes[l + 96] = (b >> 4 | (h >> 6) << 4) as i8 - HALF as i8;
        }
    }
    codes
}

#[inline(always)]
fn pack_codes(codes: &[u8; BLOCK], block: &mut [u8; BYTES]) {
    let (ql, qh) = block.split_at_mut(QH);
    let bytes = ql.as_chunks_mut::<64>().0.iter_mut().zip(qh.as_chunks_mut::<32>().0);
    for (c, (ql, qh)) in codes.as_chunks::<128>().0.iter().zip(bytes) {
        for l in 0..32 {
            ql[l] = c[l] & 15 | c[l + 64] << 4;
            ql[l + 32] = c[l + 32] & 15 | c[l + 96] << 4;
            qh[l] = c[l] >> 4 | c[l + 32] >> 4 << 2 | c[l + 64] >> 4 << 4 | c[l + 96] >> 4 << 6;
        }
    }
}

/// The scales of the groups.
fn unpack_scales(block: &[u8; BYTES]) -> [i32; GROUPS] {
    std::array::from_fn(|j| i32::from(block[SCALES + j] as i8))
}

/// The scale of a block, those of its groups, and its codes.
fn unpack(block: &[u8; BYTES]) -> Symmetric {
    (f16_at(block, D), unpack_scales(block), unpack_codes(block))
}

/// Signed codes in groups.
pub(super) const INTEGERS: IntegerForm = k_symmetric::integers(-HALF as i8, 2 * HALF as u8, |_, block, to| {
    k_symmetric::take_apart(unpack(whole(block)), to);
});

fn decode(row: &[u8], out: &mut [f32]) {
    k_symmetric::decode(row, out, unpack);
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let mut rows = SuperBlocks::<BYTES>::new(x, importance, row);
    while let Some(batch) = rows.suiting::<S>(1, encode) {
        for (b, (x, block)) in batch.x.iter().zip(batch.out).enumerate() {
            let groups = side_by_side::<S, GROUP>(simd, x);
            let mut w = groups;
            match batch.importance {
                None => {
                    for w in &mut w {
                        *w = *w * *w;
                    }
                }
                Some(importance) => w = side_by_side(simd, &importance[b]),
            }
            let fit = fit_symmetric(simd, &groups, &w, HALF as f32);
            write_block(simd, x, &fit, block);
        }
    }
}

/// Writes the scales, the one of largest magnitude as -128, and the codes that are nearest with those. A group
/// whose rounded scale is zero keeps the codes of the search.
#[inline(always)]
fn write_block<S: Simd>(simd: S, x: &[f32; BLOCK], fit: &SymmetricFit, block: &mut [u8; BYTES]) {
    let extreme = signed_extreme(&fit.scale);
    if extreme.abs() < GROUP_EPS {
        block.fill(0);
        return;
    }
    let inverse = -128.0 / extreme;
    for (sc, s) in block[SCALES..D].iter_mut().zip(&fit.scale) {
        *sc = nearest_int(inverse * s).min(127) as u8;
    }
    put_f16(block, D, 1.0 / inverse);

    let d = f16_at(block, D);
    let scales = unpack_scales(block);
    let mut codes = [0; BLOCK];
    let groups = codes.as_chunks_mut::<GROUP>().0.iter_mut();
    for (j, (codes, x)) in groups.zip(x.as_chunks::<GROUP>().0).enumerate() {
        let dl = d * scales[j] as f32;
        if dl == 0.0 {
            *codes = fit.codes(simd, j, x);
        } else {
            *codes = k_block::round_symmetric(simd, x, dl, HALF as f32);
        }
    }
    pack_codes(&codes, block);
}

fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    k_symmetric::dot(w, act, unpack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_its_own_bits() {
        for e in 0..BLOCK {
            let (h, p, l) = (e / 128, e % 128 / 32, e % 32);
            let mut codes = [0; BLOCK];
            codes[e] = 0b10_1101;
            let mut block = [0; BYTES];
            pack_codes(&codes, &mut block);
            let mut expected = [0; BYTES];
            expected[64 * h + 32 * (p % 2) + l] = 0b1101 << (4 * (p / 2));
            expected[QH + 32 * h + l] = 0b10 << (2 * p);
            assert_eq!(block, expected, "element {e}");
            assert_eq!(unpack_codes(&block), codes.map(|c| c as i8 - 32), "element {e}");
        }
    }

    #[test]
    fn scales_are_signed_and_belong_to_16_elements() {
        let mut block = [0; BYTES];
        block[SCALES + 5] = -3i8 as u8;
        put_f16(&mut block, D, 0.5);
        let mut y = [0.0; BLOCK];
        decode(&block, &mut y);
        assert!((0..BLOCK).all(|e| y[e] == if e / GROUP == 5 { 0.5 * -3.0 * -32.0 } else { 0.0 }));
    }
}
