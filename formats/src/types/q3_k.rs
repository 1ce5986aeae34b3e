//! Q3_K: 3-bit codes in 16 groups of 16, each with a signed 6-bit scale.
//!
//! ```text
//! byte   0             32           96              108      110
//!        | hmask: 32 B | qs: 64 B   | scales: 12 B  | d: f16 |
//! qs[32 h + l], bits 2 p and 2 p + 1 = low bits of element 128 h + 32 p + l   (h < 2, p < 4, l < 32)
//! hmask[l], bit 4 h + p              = high bit of the same element
//! scales[j % 8], nibble j / 8        = low 4 bits of scale j                  (j < 16)
//! scales[8 + j % 4], 2-bit field j / 4 = high 2 bits of scale j
//! x[e] = (d * (scale_j - 32)) * (code[e] - 4)            group j = elements 16 j .. 16 j + 15
//! ```

use super::grid::{Grid, Levels, Multiples, multiples_of, whole, without_minima};
use super::integers::IntegerForm;
use super::k_block::{self, BLOCK, SuperBlocks, pack_2bit, sums_of_squares, unpack_2bit};
use super::k_symmetric::{self, Symmetric};
use super::lanes::{LANES, Portable, Simd, Vector};
use super::num::{f16_at, nearest_int, put_f16, signed_extreme};
use super::search::{DescentFit, SymmetricFit, error_weights, fit_descent, fit_symmetric, side_by_side, sums};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 110;
const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const QS: usize = BLOCK / 8;
const SCALES: usize = QS + BLOCK / 4;
const D: usize = SCALES + 12;
const _: () = assert!(D + 2 == BYTES);

/// The code of zero.
const HALF: i32 = 4;
/// The code of scale zero.
const SCALE_HALF: i32 = 32;

/// Blocks whose groups are searched together without importance: a step of the descent waits for the one before.
const PLAIN_BATCH: usize = 2;
/// Blocks whose scales are rounded together with importance, a lane for each.
const BATCH: usize = LANES;

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::HighBits, Format::Bits, 0),
        Field::new(Part::Codes, Format::Bits, QS),
        Field::new(Part::GroupScales, Format::Bits, SCALES),
        Field::new(Part::Scale, Format::F16, D),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q3_K, "q3_K", BLOCK, BYTES)
};

/// Codes under scales that are decided.
pub(super) const GRID: Grid = Grid {
    group: GROUP,
    levels: Levels::Even { lowest: -HALF as i16, count: 2 * HALF as u16 },
    steps: |block, steps| {
        let block: &[u8; BYTES] = whole(block);
        multiples_of(f16_at(block, D), &unpack_scales(&block[SCALES..D]), steps);
    },
    place: |codes, block| pack_codes(whole(codes), block),
};

/// The scales of the groups.
pub(super) const MULTIPLES: Multiples = Multiples {
    scales: (-SCALE_HALF as i16, SCALE_HALF as i16 - 1),
    minima: 0,
    read: |block, multiples| without_minima(&unpack_scales(&block[SCALES..D]), multiples),
    write: |multiples, block| {
        let codes = std::array::from_fn(|j| (multiples[j][0] + SCALE_HALF as i16) as u8);
        pack_scales(&codes, &mut block[SCALES..D]);
    },
};

fn pack_scales(scales: &[u8; GROUPS], bytes: &mut [u8]) {
    bytes.fill(0);
    for (j, s) in scales.iter().enumerate() {
        bytes[j % 8] |= (s & 15) << (4 * (j / 8));
        bytes[8 + j % 4] |= (s >> 4) << (2 * (j / 4));
    }
}

/// The signed scales of the groups, -32..=31.
fn unpack_scales(bytes: &[u8]) -> [i32; GROUPS] {
    std::array::from_fn(|j| {
        let low = (bytes[j % 8] >> (4 * (j / 8))) & 15;
        let high = (bytes[8 + j % 4] >> (2 * (j / 4))) & 3;
        i32::from(low | high << 4) - SCALE_HALF
    })
}

/// The signed codes of a block, -4..=3.
fn unpack_codes(block: &[u8; BYTES]) -> [i8; BLOCK] {
    let low = unpack_2bit(&block[QS..SCALES]);
    let mut codes = [0; BLOCK];
    for (p, (codes, low)) in codes.as_chunks_mut::<32>().0.iter_mut().zip(low.as_chunks::<32>().0).enumerate() {
        for l in 0..32 {
            codes[l] = (low[l] | ((block[l] >> p) & 1) << 2) as i8 - HALF as i8;
        }
    }
    codes
}

/// The scale of a block, those of its groups, and its codes.
fn unpack(block: &[u8; BYTES]) -> Symmetric {
    (f16_at(block, D), unpack_scales(&block[SCALES..D]), unpack_codes(block))
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
    let rows = SuperBlocks::<BYTES>::new(x, importance, row);
    match importance {
        None => encode_plain(simd, rows),
        Some(_) => encode_important(simd, rows),
    }
}

/// The scale of largest magnitude gets code 0.
#[inline(always)]
fn encode_plain<S: Simd>(simd: S, mut rows: SuperBlocks<'_, BYTES>) {
    while let Some(batch) = rows.suiting::<S>(PLAIN_BATCH, encode) {
        let mut x = [[simd.splat(0.0); GROUP]; PLAIN_BATCH];
        for (groups, x) in x.iter_mut().zip(batch.x) {
            *groups = side_by_side(simd, x);
        }
        let fits = fit_descent(simd, &x, HALF as f32);
        for (b, (x, block)) in batch.x.iter().zip(batch.out).enumerate() {
            write_scales(&fits[b].scale, block);
            write_codes(simd, x, &Search::Descent(&fits[b]), block);
        }
    }
}

fn write_scales(scales: &[f32; GROUPS], block: &mut [u8; BYTES]) {
    let extreme = signed_extreme(scales);
    if extreme == 0.0 {
        block[SCALES..].fill(0);
        return;
    }
    let inverse = -SCALE_HALF as f32 / extreme;
    let codes = scales.map(|s| {
        let l = i32::from(nearest_int(inverse * s) as i8);
        (l.clamp(-SCALE_HALF, SCALE_HALF - 1) + SCALE_HALF) as u8
    });
    pack_scales(&codes, &mut block[SCALES..D]);
    put_f16(block, D, 1.0 / inverse);
}

/// The scales are rounded by a weighted fit.
#[inline(always)]
fn encode_important<S: Simd>(simd: S, mut rows: SuperBlocks<'_, BYTES>) {
    while let Some(batch) = rows.suiting::<S>(BATCH, encode) {
        let importance = batch.importance.unwrap_or_default();
        let squares = sums_of_squares(simd, batch.x);
        let mut fits = [None; BATCH];
        let (mut scales, mut weights) = ([[0.0; GROUPS]; BATCH], [[0.0; GROUPS]; BATCH]);
        for (b, (x, importance)) in batch.x.iter().zip(importance).enumerate() {
            let sigma2 = simd.splat(2.0 * squares[b] / BLOCK as f32);
            let x = side_by_side::<S, GROUP>(simd, x);
            let w = error_weights(&x, &side_by_side(simd, importance), sigma2);
            let fit = fit_symmetric(simd, &x, &w, HALF as f32);
            (scales[b], weights[b]) = (fit.scale, sums(simd, &w).to_array());
            fits[b] = Some(fit);
        }
        let of_scales = fit_symmetric::<S, GROUPS>(
            simd,
            &side_by_side(simd, scales.as_flattened()),
            &side_by_side(simd, weights.as_flattened()),
            SCALE_HALF as f32,
        );
        for (b, (x, block)) in batch.x.iter().zip(batch.out).enumerate() {
            let codes = of_scales.codes(simd, b, &scales[b]);
            pack_scales(&codes, &mut block[SCALES..D]);
            put_f16(block, D, of_scales.scale[b]);
            if let Some(fit) = &fits[b] {
                write_codes(simd, x, &Search::Fit(fit), block);
            }
        }
    }
}

/// Result of the search, which gives the codes of groups whose rounded scale is zero.
enum Search<'a> {
    Descent(&'a DescentFit<GROUP>),
    Fit(&'a SymmetricFit),
}

impl Search<'_> {
    #[inline(always)]
    fn codes<S: Simd>(&self, simd: S, j: usize, x: &[f32; GROUP]) -> [u8; GROUP] {
        match self {
            Search::Descent(fit) => fit.codes.map(|codes| codes[j] as u8),
            Search::Fit(fit) => fit.codes(simd, j, x),
        }
    }
}

/// Writes the codes of a block whose scales are there.
#[inline(always)]
fn write_codes<S: Simd>(simd: S, x: &[f32; BLOCK], search: &Search<'_>, block: &mut [u8; BYTES]) {
    let d = f16_at(block, D);
    let scales = unpack_scales(&block[SCALES..D]);
    let mut codes = [0; BLOCK];
    let groups = codes.as_chunks_mut::<GROUP>().0.iter_mut();
    for (j, (codes, x)) in groups.zip(x.as_chunks::<GROUP>().0).enumerate() {
        let dl = d * scales[j] as f32;
        if dl == 0.0 {
            *codes = search.codes(simd, j, x);
        } else {
            *codes = k_block::round_symmetric(simd, x, dl, HALF as f32);
        }
    }
    pack_codes(&codes, block);
}

#[inline(always)]
fn pack_codes(codes: &[u8; BLOCK], block: &mut [u8]) {
    let mut high = [0; QS];
    for codes in codes.as_chunks::<QS>().0.iter().rev() {
        for (h, c) in high.iter_mut().zip(codes) {
            *h = *h << 1 | c >> 2;
        }
    }
    block[..QS].copy_from_slice(&high);
    pack_2bit(codes, &mut block[QS..SCALES]);
}

fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    k_symmetric::dot(w, act, unpack)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with `d = 1`, all scales 1, and code 4 (zero) everywhere.
    fn zero_block() -> [u8; BYTES] {
        let mut block = [0; BYTES];
        block[..QS].fill(0xFF);
        pack_scales(&[33; GROUPS], &mut block[SCALES..D]);
        put_f16(&mut block, D, 1.0);
        block
    }

    #[test]
    fn scales_lie_where_the_map_says() {
        let mut scales = [0; GROUPS];
        scales[6] = 0b10_0011;
        scales[13] = 0b01_1100;
        let mut bytes = [0; 12];
        pack_scales(&scales, &mut bytes);
        let mut expected = [0; 12];
        expected[6] = 0b0011;
        expected[5] = 0b1100 << 4;
        expected[8 + 2] = 0b10 << 2;
        expected[8 + 1] = 0b01 << 6;
        assert_eq!(bytes, expected);
        for j in 0..GROUPS {
            for s in 0..64 {
                let mut scales = [21; GROUPS];
                scales[j] = s;
                pack_scales(&scales, &mut bytes);
                assert_eq!(unpack_scales(&bytes), scales.map(|s| i32::from(s) - SCALE_HALF));
            }
        }
    }

    #[test]
    fn every_element_has_its_own_bits() {
        for e in 0..BLOCK {
            let (h, p, l) = (e / 128, e % 128 / 32, e % 32);
            let mut block = zero_block();
            block[l] &= !(1 << (4 * h + p));
            block[QS + 32 * h + l] |= 3 << (2 * p);
            let mut y = [0.0; BLOCK];
            decode(&block, &mut y);
            assert!((0..BLOCK).all(|i| y[i] == if i == e { -1.0 } else { 0.0 }), "element {e}");
        }
    }

    #[test]
    fn zero_groups_keep_code_zero_of_the_search() {
        let mut block = [0xAA; BYTES];
        encode(&[0.0; BLOCK], None, &mut block);
        assert_eq!(block, [0; BYTES]);
    }
}
