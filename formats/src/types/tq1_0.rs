//! TQ1_0: ternary weights, five base-3 digits to a byte.
//!
//! ```text
//! byte  0                 31 32               47 48             51 52   53
//!       +-------------------+-------------------+-----------------+-------+
//!       | weights 0..160    | weights 160..240  | weights 240..256|   d   |
//!       | 32 bytes, 5 trits | 16 bytes, 5 trits | 4 bytes, 4 trits|  f16  |
//!       +-------------------+-------------------+-----------------+-------+
//!
//! group of B bytes from weight s: trit t of byte m is weight  s + t * B + m;
//! digit 0, 1, 2 = -1, 0, +1 times d
//! ```
//!
//! A byte is the fraction `0.t0 t1 t2 t3 t4` in base 3, scaled to 256 and rounded up, so that trit `t` is
//! the integer part of `3 * frac(3^t * byte / 256)`: no division to decode. The last group leaves `t4` 0.
//! It is the packing of 5 trits in 8 bits of [`super::trits`], where it is said why nothing is lost.
//!
//! PTQ1_0 of PrismML's fork of llama.cpp is the same for 128 weights in 28 bytes: groups of 16 bytes with weights
//! 0..80, of 8 bytes with 80..120, of 2 bytes with four trits each for the last 8 weights, and the scale.

use super::grid::{Grid, Levels, scale_last};
use super::integers::{Coding, IntegerForm, Sums};
use super::num::{f16_at, put_f16};
use super::tq2_0::{self, codes};
use super::{Field, Format, Part, TypeId, TypeInfo, q2_0, q8_0, q8_k};

const BLOCK: usize = 256;
const BYTES: usize = 54;
const SCALE_AT: usize = 52;
const _: () = assert!(BYTES == 32 + 16 + 4 + size_of::<u16>() && 5 * 32 + 5 * 16 + 4 * 4 == BLOCK);

/// TQ1_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Codes, Format::Bits, 0), Field::new(Part::Scale, Format::F16, SCALE_AT)],
    act: Some(TypeId::Q8_K),
    decode: Some(|row, out| decode(GROUPS, row.as_chunks::<BYTES>().0, out.as_chunks_mut::<BLOCK>().0)),
    encode: Some(|x, _, row| encode(GROUPS, x.as_chunks::<BLOCK>().0, row.as_chunks_mut::<BYTES>().0)),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::TQ1_0, "tq1_0", BLOCK, BYTES)
};

const NARROW_BLOCK: usize = 128;
const NARROW_BYTES: usize = 28;
const NARROW_SCALE_AT: usize = 26;
const _: () = assert!(NARROW_BYTES == 16 + 8 + 2 + size_of::<u16>());
const _: () = assert!(5 * 16 + 5 * 8 + 4 * 2 == NARROW_BLOCK);

/// PTQ1_0 of PrismML's fork in the registry.
pub const PTQ1_0: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Codes, Format::Bits, 0), Field::new(Part::Scale, Format::F16, NARROW_SCALE_AT)],
    act: Some(TypeId::Q8_0),
    decode: Some(|row, out| {
        let out = out.as_chunks_mut::<NARROW_BLOCK>().0;
        decode(NARROW_GROUPS, row.as_chunks::<NARROW_BYTES>().0, out)
    }),
    encode: Some(|x, _, row| {
        let blocks = x.as_chunks::<NARROW_BLOCK>().0;
        encode(NARROW_GROUPS, blocks, row.as_chunks_mut::<NARROW_BYTES>().0);
    }),
    dot_ref: Some(narrow_dot_ref),
    ..TypeInfo::sized(TypeId::PTQ1_0, "ptq1_0", NARROW_BLOCK, NARROW_BYTES)
};

/// The groups of a block: first byte, bytes, trits in each, first weight.
type Groups = [(usize, usize, usize, usize); 3];
const GROUPS: Groups = [(0, 32, 5, 0), (32, 16, 5, 160), (48, 4, 4, 240)];
const NARROW_GROUPS: Groups = [(0, 16, 5, 0), (16, 8, 5, 80), (24, 2, 4, 120)];

/// Codes under a scale that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: -1, count: 3 },
    steps: scale_last,
    place: |codes, block| place(GROUPS, codes, block),
};

/// The same of PTQ1_0.
pub(super) const NARROW_GRID: Grid =
    Grid { group: NARROW_BLOCK, place: |codes, block| place(NARROW_GROUPS, codes, block), ..GRID };

const POW3: [u8; 5] = [1, 3, 9, 27, 81];

/// Trit `t` of a packed byte, as its code 0, 1 or 2. Defined for all 256 bytes, although only 243 are
/// ever written.
#[inline]
fn trit(byte: u8, t: usize) -> u8 {
    ((u16::from(byte.wrapping_mul(POW3[t])) * 3) >> 8) as u8
}

/// Packs a base-3 number of five digits.
#[inline]
fn pack(number: u8) -> u8 {
    // A number above 242 comes only from codes above 2 (a block with NaN); its byte wraps.
    (u32::from(number) * 256).div_ceil(243) as u8
}

/// Calls `f(weight, code)` for each weight of a block, group by group.
#[inline]
fn for_each_code(groups: Groups, block: &[u8], mut f: impl FnMut(usize, u8)) {
    for (at, len, trits, first) in groups {
        for t in 0..trits {
            for (m, &byte) in block[at..at + len].iter().enumerate() {
                f(first + t * len + m, trit(byte, t));
            }
        }
    }
}

/// The same weights as a block of TQ2_0: each digit is its code, and the scale is the same.
pub fn to_tq2_0(block: &[u8; BYTES]) -> [u8; tq2_0::BYTES] {
    let mut out = [0; tq2_0::BYTES];
    out[tq2_0::CODES..].copy_from_slice(&block[SCALE_AT..]);
    for_each_code(GROUPS, block, |e, code| {
        out[tq2_0::PLANE * (e / 128) + e % tq2_0::PLANE] |= code << (2 * (e / tq2_0::PLANE % 4));
    });
    out
}

/// The weights of a block of PTQ1_0 as a block of PQ2_0: each digit is its code, and the scale is the same.
pub fn to_pq2_0(block: &[u8; NARROW_BYTES]) -> [u8; q2_0::WIDE_BYTES] {
    let mut out = [0; q2_0::WIDE_BYTES];
    let (scale, codes) = out.split_at_mut(NARROW_BYTES - NARROW_SCALE_AT);
    scale.copy_from_slice(&block[NARROW_SCALE_AT..]);
    for_each_code(NARROW_GROUPS, block, |e, code| {
        codes[e / 4] |= code << (2 * (e % 4));
    });
    out
}

/// Trits.
pub(super) const INTEGERS: IntegerForm =
    IntegerForm::new(BLOCK, Coding::Even { lowest: -1, count: 3 }, Sums::WHOLE, |_, block, to| {
        for_each_code(GROUPS, block, |e, code| to.levels[e] = code as i8 - 1);
        to.d = [f16_at(block, SCALE_AT); 4];
    });

/// The trits of PTQ1_0.
pub(super) const NARROW_INTEGERS: IntegerForm =
    IntegerForm::new(32, Coding::Even { lowest: -1, count: 3 }, Sums::Nested, |_, block, to| {
        for_each_code(NARROW_GROUPS, block, |e, code| to.levels[e] = code as i8 - 1);
        to.d = [f16_at(block, NARROW_SCALE_AT); 4];
    });

/// Decodes blocks that end with their scale.
fn decode<const BLOCK: usize, const BYTES: usize>(groups: Groups, blocks: &[[u8; BYTES]], out: &mut [[f32; BLOCK]]) {
    for (b, y) in blocks.iter().zip(out) {
        let d = f16_at(b, BYTES - 2);
        for_each_code(groups, b, |e, code| y[e] = (i32::from(code) - 1) as f32 * d);
    }
}

fn encode<const BLOCK: usize, const BYTES: usize>(groups: Groups, x: &[[f32; BLOCK]], blocks: &mut [[u8; BYTES]]) {
    let mut code = [0; BLOCK];
    for (x, b) in x.iter().zip(blocks) {
        let d = codes(x, &mut code);
        put_f16(b, BYTES - 2, d);
        place(groups, &code, b);
    }
}

/// Writes codes, digits of base 3, before the scale of a block.
#[inline(always)]
fn place(groups: Groups, code: &[u8], block: &mut [u8]) {
    for (at, len, trits, first) in groups {
        for m in 0..len {
            let digits = (0..5).map(|t| if t < trits { code[first + t * len + m] } else { 0 });
            block[at + m] = pack(digits.fold(0u8, |n, c| n.wrapping_mul(3).wrapping_add(c)));
        }
    }
}

/// Per block `acc += isum * (dw * dx)`, `isum = sum of (code - 1) * q8`: the same as for TQ2_0.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(x.as_chunks::<{ q8_k::BYTES }>().0) {
        let (dx, q8) = (q8_k::scale(x), q8_k::quants(x));
        let mut isum = 0;
        for_each_code(GROUPS, w, |e, code| isum += (i32::from(code) - 1) * i32::from(q8[e] as i8));
        acc += isum as f32 * (f16_at(w, SCALE_AT) * dx);
    }
    acc
}

/// Per block `t = 0; t += dx * isum` for each of its four activation blocks, then `acc += dw * t`: the same as for
/// PQ2_0.
fn narrow_dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    let groups = q8_0::blocks(x).as_chunks::<4>().0;
    for (w, group) in w.as_chunks::<NARROW_BYTES>().0.iter().zip(groups) {
        let mut isum = [0; 4];
        for_each_code(NARROW_GROUPS, w, |e, code| {
            isum[e / 32] += (i32::from(code) - 1) * q8_0::quant(&group[e / 32], e % 32);
        });
        let mut t = 0.0f32;
        for (x, isum) in group.iter().zip(isum) {
            t += q8_0::scale(x) * isum as f32;
        }
        acc += f16_at(w, NARROW_SCALE_AT) * t;
    }
    acc
}
