//! IQ4_XS: the sixteen levels of IQ4_NL in 8 groups of 32, each with a signed 6-bit scale.
//!
//! ```text
//! byte   0        2             4             8          136
//!        | d: f16 | scales_h: 2 | scales_l: 4 | qs: 128 B |
//! scale g: low 4 bits = nibble g % 2 of scales_l[g / 2], high 2 bits = 2-bit field g of scales_h (u16)
//! qs[16 g + j]: low nibble = weight 32 g + j, high nibble = weight 32 g + j + 16
//! x      = (d * (scale - 32)) * LEVELS[code]
//! ```

use super::block32::{self, Codes, Nibbles, put_codes};
use super::grid::{Grid, Levels, Multiples, multiples_of, whole, without_minima};
use super::integers::{Coding, IntegerForm, Sums};
use super::iq4_nl::{self, LEVELS, nearest_code, search_scale};
use super::k_block::{self, BLOCK};
use super::num::{f16_at, inverse, nearest_int, put_f16, signed_extreme};
use super::{Field, Format, Part, TypeId, TypeInfo, q8_k};

const BYTES: usize = 136;
const SIZE: usize = 32;
const GROUPS: usize = BLOCK / SIZE;
const HIGH: usize = 2;
const LOW: usize = HIGH + GROUPS / 4;
const CODES: usize = LOW + GROUPS / 2;
const _: () = assert!(CODES + BLOCK / 2 == BYTES);

/// The code of scale zero.
const SCALE_HALF: i32 = 32;

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::GroupScales, Format::Bits, HIGH),
        Field::new(Part::Codes, Format::Bits, CODES),
    ],
    codebook: Some(&LEVELS),
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::IQ4_XS, "iq4_xs", BLOCK, BYTES)
};

/// Codes under scales that are decided.
pub(super) const GRID: Grid = Grid {
    group: SIZE,
    levels: Levels::Table(&LEVELS),
    steps: |block, steps| {
        let block: &[u8; BYTES] = whole(block);
        multiples_of(f16_at(block, 0), &unpack_scales(block), steps);
    },
    place: |codes, block| {
        let nibbles = block[CODES..].as_chunks_mut::<16>().0.iter_mut();
        nibbles.zip(codes.as_chunks().0).for_each(|(nibbles, codes)| Nibbles::pack(codes, nibbles));
    },
};

/// The scales of the groups.
pub(super) const MULTIPLES: Multiples = Multiples {
    scales: (-SCALE_HALF as i16, SCALE_HALF as i16 - 1),
    minima: 0,
    read: |block, multiples| without_minima(&unpack_scales(whole(block)), multiples),
    write: |multiples, block| pack_scales(&std::array::from_fn(|g| i32::from(multiples[g][0])), block),
};

/// Writes the signed scales of the groups.
fn pack_scales(scales: &[i32; GROUPS], block: &mut [u8]) {
    block[LOW..CODES].fill(0);
    let mut high = 0;
    for (g, scale) in scales.iter().enumerate() {
        let code = (scale + SCALE_HALF) as u16;
        block[LOW + g / 2] |= ((code & 15) << (4 * (g % 2))) as u8;
        high |= (code >> 4) << (2 * g);
    }
    block[HIGH..LOW].copy_from_slice(&high.to_le_bytes());
}

/// The signed scales of the groups, -32..=31.
fn unpack_scales(block: &[u8; BYTES]) -> [i32; GROUPS] {
    let high = u16::from_le_bytes([block[HIGH], block[HIGH + 1]]);
    std::array::from_fn(|g| {
        let low = block[LOW + g / 2] >> (4 * (g % 2)) & 15;
        i32::from(u16::from(low) | (high >> (2 * g) & 3) << 4) - SCALE_HALF
    })
}

/// The levels of the groups' weights.
fn unpack_levels(block: &[u8; BYTES]) -> [[i8; SIZE]; GROUPS] {
    let nibbles = block[CODES..].as_chunks::<16>().0;
    std::array::from_fn(|g| block32::levels(&nibbles[g], &LEVELS))
}

/// Levels of a table in groups.
pub(super) const INTEGERS: IntegerForm =
    IntegerForm::new(SIZE, Coding::Table(&LEVELS), Sums::Groups, |_, block, to| {
        let block = whole(block);
        to.set(unpack_levels(block).as_flattened(), f16_at(block, 0));
        to.set_scales(&unpack_scales(block));
    });

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let d = f16_at(block, 0);
        let groups = y.as_chunks_mut::<SIZE>().0.iter_mut().zip(unpack_levels(block));
        for ((y, levels), scale) in groups.zip(unpack_scales(block)) {
            let scale = d * scale as f32;
            for (y, level) in y.iter_mut().zip(levels) {
                *y = scale * f32::from(level);
            }
        }
    });
}

/// Groups are fitted as the blocks of IQ4_NL are, their scales rounded with the one of largest magnitude at -32, and
/// codes chosen for the rounded scales. Source: ggml `quantize_row_iq4_nl_impl` with super-blocks.
fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let mut importance = importance.map(|w| w.as_chunks::<BLOCK>().0.iter());
    let blocks = x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0);
    for (x, block) in blocks {
        let weight = iq4_nl::error_weights(x, importance.as_mut().and_then(Iterator::next));
        let groups = x.as_chunks::<SIZE>().0;
        let mut scales = [0.0; GROUPS];
        for (scale, (x, weight)) in scales.iter_mut().zip(groups.iter().zip(weight.as_chunks().0)) {
            *scale = search_scale(x, weight);
        }
        block.fill(0);
        let d = -signed_extreme(&scales) / SCALE_HALF as f32;
        put_f16(block, 0, d);
        let codes = scales.map(|scale| nearest_int(inverse(d) * scale).clamp(-SCALE_HALF, SCALE_HALF - 1));
        for (g, (x, code)) in groups.iter().zip(codes).enumerate() {
            let inverse = inverse(d * code as f32);
            put_codes(x, &mut block[CODES + 16 * g..][..16], |v| nearest_code(inverse * v));
        }
        pack_scales(&codes, block);
    }
}

/// Per group `acc += ((dw * dx) * scale) * sum`.
fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (x, y) in q8_k::block_pairs::<BYTES>(w, act) {
        let d = f16_at(x, 0) * q8_k::scale(y);
        let groups = unpack_levels(x).into_iter().zip(q8_k::quants(y).as_chunks::<SIZE>().0);
        for ((levels, q), scale) in groups.zip(unpack_scales(x)) {
            let products = levels.into_iter().zip(q);
            let sum: i32 = products.map(|(l, q)| i32::from(l) * i32::from(*q as i8)).sum();
            acc += d * scale as f32 * sum as f32;
        }
    }
    acc
}
