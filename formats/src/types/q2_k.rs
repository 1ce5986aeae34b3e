//! Q2_K: 2-bit codes in 16 groups of 16, each with a 4-bit scale and a 4-bit minimum.
//!
//! ```text
//! byte   0              16              80       82         84
//!        | scales: 16 B | qs: 64 B      | d: f16 | dmin: f16 |
//! scales[j] = min_j << 4 | scale_j                       group j = elements 16 j .. 16 j + 15
//! qs[32 h + l], bits 2 p and 2 p + 1 = element 128 h + 32 p + l     (h < 2, p < 4, l < 32)
//! x[e] = (d * scale_j) * code[e] - (dmin * min_j)
//! ```

use super::grid::{Grid, Levels, Multiples, Step, whole};
use super::integers::{Coding, IntegerForm, Sums};
use super::k_block::{self, BLOCK, SuperBlocks, pack_2bit, sums_of_squares, unpack_2bit};
use super::lanes::{LANES, Portable, Simd, Vector};
use super::num::{f16_at, nearest_int, put_f16};
use super::q8_k;
use super::search::{AffineFit, AffineGrid, error_weights, fit_affine, fit_unsigned, side_by_side, sums};
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 84;
const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const QS: usize = GROUPS;
const D: usize = QS + BLOCK / 4;
const DMIN: usize = D + 2;
const _: () = assert!(DMIN + 2 == BYTES);

const TOP: f32 = 3.0;
const SCALE_TOP: f32 = 15.0;

/// Candidates without importance.
const PLAIN: AffineGrid = AffineGrid { top: TOP, from: -0.5, step: 0.1, last: 15 };
/// Candidates with importance.
const IMPORTANT: AffineGrid = AffineGrid { top: TOP, from: -0.9, step: 0.05, last: 36 };

/// Blocks whose scales and minima are rounded together: a lane for the scales of each and one for the minima.
const BATCH: usize = LANES / 2;

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::GroupScales, Format::Bits, 0),
        Field::new(Part::Codes, Format::Bits, QS),
        Field::new(Part::Scale, Format::F16, D),
        Field::new(Part::Min, Format::F16, DMIN),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::Q2_K, "q2_K", BLOCK, BYTES)
};

/// Codes under scales and minima that are decided.
pub(super) const GRID: Grid = Grid {
    group: GROUP,
    levels: Levels::Even { lowest: 0, count: TOP as u16 + 1 },
    steps: |block, steps| {
        let block: &[u8; BYTES] = whole(block);
        let (d, dmin) = (f16_at(block, D), f16_at(block, DMIN));
        for (step, sc) in steps.iter_mut().zip(&block[..GROUPS]) {
            *step = Step { scale: d * f32::from(sc & 15), offset: dmin * f32::from(sc >> 4), second: false };
        }
    },
    place: |codes, block| pack_2bit(whole(codes), &mut block[QS..D]),
};

/// The scales and minima of the groups.
pub(super) const MULTIPLES: Multiples = Multiples {
    scales: (0, SCALE_TOP as i16),
    minima: SCALE_TOP as i16,
    read: |block, multiples| {
        for (pair, sc) in multiples.iter_mut().zip(&block[..GROUPS]) {
            *pair = [sc & 15, sc >> 4].map(i16::from);
        }
    },
    write: |multiples, block| {
        for (sc, [scale, minimum]) in block[..GROUPS].iter_mut().zip(multiples) {
            *sc = (minimum << 4 | scale) as u8;
        }
    },
};

/// Codes in groups with minima.
pub(super) const INTEGERS: IntegerForm =
    IntegerForm::new(GROUP, Coding::Even { lowest: 0, count: TOP as u8 + 1 }, Sums::Minima, |_, block, to| {
        to.set(&unpack_2bit(&block[QS..D]), f16_at(block, D));
        to.scales = std::array::from_fn(|g| (block[g] & 15) as i8);
        to.minima = std::array::from_fn(|g| (block[g] >> 4) as i8);
        to.minimum = f16_at(block, DMIN);
    });

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let (d, dmin) = (f16_at(block, D), f16_at(block, DMIN));
        let codes = unpack_2bit(&block[QS..D]);
        let groups = y.as_chunks_mut::<GROUP>().0.iter_mut().zip(codes.as_chunks::<GROUP>().0);
        for ((y, codes), sc) in groups.zip(&block[..GROUPS]) {
            let (dl, ml) = (d * f32::from(sc & 15), dmin * f32::from(sc >> 4));
            for (y, c) in y.iter_mut().zip(codes) {
                *y = dl * f32::from(*c) - ml;
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
    let mut rows = SuperBlocks::<BYTES>::new(x, importance, row);
    while let Some(batch) = rows.suiting::<S>(BATCH, encode) {
        let mut groups = [const { None }; BATCH];
        let mut rounded = [[(0.0, [0; GROUPS]); 2]; BATCH];
        match batch.importance {
            None => {
                for (b, x) in batch.x.iter().enumerate() {
                    groups[b] = fit_plain(simd, x);
                    if let Some(Groups { fit, .. }) = &groups[b] {
                        rounded[b] = [round_plain(&fit.scale), round_plain(&fit.neg_min)];
                    }
                }
            }
            Some(importance) => {
                let squares = sums_of_squares(simd, batch.x);
                for (b, (x, importance)) in batch.x.iter().zip(importance).enumerate() {
                    groups[b] = fit_important(simd, x, importance, squares[b] / BLOCK as f32);
                }
                round_important(simd, &groups, &mut rounded);
            }
        }
        for (b, (x, block)) in batch.x.iter().zip(batch.out).enumerate() {
            match &groups[b] {
                Some(Groups { fit, .. }) => write_block(simd, x, fit, &rounded[b], block),
                None => encode(x, batch.importance.map(|w| &w[b][..]), block),
            }
        }
    }
}

/// The groups of a block: their scales and minima, and the sums of their error weights.
struct Groups {
    fit: AffineFit,
    weights: [f32; GROUPS],
}

#[inline(always)]
fn fit_plain<S: Simd>(simd: S, x: &[f32; BLOCK]) -> Option<Groups> {
    let x = side_by_side::<S, GROUP>(simd, x);
    let mut size = x;
    for v in &mut size {
        *v = v.abs();
    }
    let [fit] = fit_affine::<S, GROUP, 1, true>(simd, &[x], &[size], PLAIN);
    fit.map(|fit| Groups { fit, weights: [0.0; GROUPS] })
}

#[inline(always)]
fn fit_important<S: Simd>(simd: S, x: &[f32; BLOCK], importance: &[f32; BLOCK], sigma2: f32) -> Option<Groups> {
    let x = side_by_side::<S, GROUP>(simd, x);
    let importance = side_by_side::<S, GROUP>(simd, importance);
    let w = error_weights(&x, &importance, simd.splat(sigma2));
    let weights = sums(simd, &w).to_array();
    let [fit] = fit_affine::<S, GROUP, 1, false>(simd, &[x], &[w], IMPORTANT);
    fit.map(|fit| Groups { fit, weights })
}

/// The scales of a block, then its minima: the float they are multiples of, and the multiples, of which a file
/// keeps four bits.
type Rounded = [(f32, [u32; GROUPS]); 2];

/// The largest value becomes 15.
#[inline(always)]
fn round_plain(values: &[f32; GROUPS]) -> (f32, [u32; GROUPS]) {
    let mut max = 0.0;
    for &v in values {
        max = if v > max { v } else { max };
    }
    let mut multiples = [0; GROUPS];
    if max > 0.0 {
        let inverse = SCALE_TOP / max;
        for (multiple, v) in multiples.iter_mut().zip(values) {
            *multiple = nearest_int(inverse * v).cast_unsigned();
        }
    }
    (max / SCALE_TOP, multiples)
}

/// A weighted fit for the scales and one for the minima of each block, all side by side.
#[inline(always)]
fn round_important<S: Simd>(simd: S, groups: &[Option<Groups>; BATCH], rounded: &mut [Rounded; BATCH]) {
    let (mut x, mut w) = ([[0.0; GROUPS]; LANES], [[0.0; GROUPS]; LANES]);
    for (b, groups) in groups.iter().enumerate() {
        if let Some(Groups { fit, weights }) = groups {
            (x[b], x[BATCH + b]) = (fit.scale, fit.neg_min);
            (w[b], w[BATCH + b]) = (*weights, *weights);
        }
    }
    let x = side_by_side::<S, GROUPS>(simd, x.as_flattened());
    let w = side_by_side::<S, GROUPS>(simd, w.as_flattened());
    let (scale, codes) = fit_unsigned(simd, &x, &w, SCALE_TOP);
    let scale = scale.to_array();
    for (j, codes) in codes.into_iter().enumerate() {
        let codes = codes.to_array();
        for (b, [scales, mins]) in rounded.iter_mut().enumerate() {
            (scales.0, mins.0) = (scale[b], scale[BATCH + b]);
            (scales.1[j], mins.1[j]) = (codes[b] as u32, codes[BATCH + b] as u32);
        }
    }
}

/// Writes scales and minima, and the codes that are nearest with those. A group whose rounded scale is zero keeps
/// the codes of the search.
#[inline(always)]
fn write_block<S: Simd>(simd: S, x: &[f32; BLOCK], fit: &AffineFit, rounded: &Rounded, block: &mut [u8; BYTES]) {
    let [(d, scales), (dmin, mins)] = rounded;
    for j in 0..GROUPS {
        block[j] = (scales[j] | mins[j] << 4) as u8;
    }
    put_f16(block, D, *d);
    put_f16(block, DMIN, *dmin);
    let (d, dmin) = (f16_at(block, D), f16_at(block, DMIN));
    let mut codes = [0; BLOCK];
    let groups = codes.as_chunks_mut::<GROUP>().0.iter_mut();
    for (j, (codes, x)) in groups.zip(x.as_chunks::<GROUP>().0).enumerate() {
        let dl = d * f32::from(block[j] & 15);
        if dl == 0.0 {
            *codes = fit.codes(simd, j, x);
        } else {
            let dm = dmin * f32::from(block[j] >> 4);
            *codes = k_block::round_affine(simd, x, dl, dm, TOP);
        }
    }
    pack_2bit(&codes, &mut block[QS..D]);
}

fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    let mut sum = 0.0;
    for (x, y) in q8_k::block_pairs::<BYTES>(w, act) {
        let codes = unpack_2bit(&x[QS..D]);
        let (mut scaled, mut minima) = (0, 0);
        let groups = codes.as_chunks::<GROUP>().0.iter().zip(q8_k::quants(y).as_chunks::<GROUP>().0);
        for (j, ((codes, q8), sc)) in groups.zip(&x[..GROUPS]).enumerate() {
            let products = codes.iter().zip(q8).map(|(c, q)| i32::from(*c) * i32::from(*q as i8));
            scaled += i32::from(sc & 15) * products.sum::<i32>();
            minima += i32::from(sc >> 4) * q8_k::bsum(y, j);
        }
        let yd = q8_k::scale(y);
        sum += yd * f16_at(x, D) * scaled as f32 - yd * f16_at(x, DMIN) * minima as f32;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_its_own_bits_and_its_groups_scale() {
        for e in 0..BLOCK {
            let (h, p, l) = (e / 128, e % 128 / 32, e % 32);
            let mut block = [0; BYTES];
            block[e / GROUP] = 5 << 4 | 7;
            block[QS + 32 * h + l] = 3 << (2 * p);
            put_f16(&mut block, D, 0.5);
            put_f16(&mut block, DMIN, 0.25);
            let mut y = [0.0; BLOCK];
            decode(&block, &mut y);
            for (i, y) in y.iter().enumerate() {
                let min = if i / GROUP == e / GROUP { 0.25 * 5.0 } else { 0.0 };
                assert_eq!(*y, if i == e { 0.5 * 7.0 * 3.0 - min } else { -min }, "element {i} of {e}");
            }
        }
    }

    #[test]
    fn minima_of_the_dot_come_from_the_stored_sums() {
        let mut block = [0; BYTES];
        block[3] = 9 << 4;
        put_f16(&mut block, DMIN, 2.0);
        let mut act = [0; q8_k::BYTES];
        act[..4].copy_from_slice(&0.5f32.to_le_bytes());
        act[260 + 2 * 3] = 11;
        assert_eq!(dot_ref(&block, &act), -(0.5 * 2.0) * (9.0 * 11.0));
    }
}
