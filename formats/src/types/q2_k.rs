//! Q2_K: 2-bit codes in 16 groups of 16, each with a 4-bit scale and a 4-bit minimum.
//!
//! ```text
//! byte   0              16              80       82         84
//!        | scales: 16 B | qs: 64 B      | d: f16 | dmin: f16 |
//! scales[j] = min_j << 4 | scale_j                       group j = elements 16 j .. 16 j + 15
//! qs[32 h + l], bits 2 p and 2 p + 1 = element 128 h + 32 p + l     (h < 2, p < 4, l < 32)
//! x[e] = (d * scale_j) * code[e] - (dmin * min_j)
//! ```

use super::k_block::{self, BLOCK, pack_2bit, unpack_2bit};
use super::num::{f16_at, nearest_int, put_f16};
use super::q8_k;
use super::search::{self, AffineFit, AffineGrid, Tile, fit_affine, fit_unsigned};
use super::{TypeId, TypeInfo};

const BYTES: usize = 84;
const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const QS: usize = GROUPS;
const D: usize = QS + BLOCK / 4;
const DMIN: usize = D + 2;
const _: () = assert!(DMIN + 2 == BYTES);

/// Groups that are searched side by side, and the vectors they fill.
const LANES: usize = 8;
const V: usize = LANES / 4;
const TOP: f32 = 3.0;
const SCALE_TOP: f32 = 15.0;

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::Q2_K,
    name: "q2_K",
    block: BLOCK,
    bytes: BYTES,
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
};

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let (d, dmin) = (f16_at(block, D), f16_at(block, DMIN));
        let codes = unpack_2bit(&block[QS..D]);
        let groups = y
            .as_chunks_mut::<GROUP>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<GROUP>().0);
        for ((y, codes), sc) in groups.zip(&block[..GROUPS]) {
            let (dl, ml) = (d * f32::from(sc & 15), dmin * f32::from(sc >> 4));
            for (y, c) in y.iter_mut().zip(codes) {
                *y = dl * f32::from(*c) - ml;
            }
        }
    });
}

/// Scales, minima and the fits they came from, for the 16 groups of a block.
struct Groups {
    scales: [f32; GROUPS],
    mins: [f32; GROUPS],
    fits: [AffineFit<V>; 2],
}

fn fit_groups<const ABSOLUTE: bool>(
    x: &[f32; BLOCK],
    w: &[Tile<GROUP, V>; 2],
    grid: AffineGrid,
) -> Groups {
    let fits =
        [0, 1].map(|h| fit_affine::<GROUP, V, ABSOLUTE>(&search::tile(&x[128 * h..]), &w[h], grid));
    let (mut scales, mut mins) = ([0.0; GROUPS], [0.0; GROUPS]);
    for j in 0..GROUPS {
        scales[j] = fits[j / LANES].scale.as_flattened()[j % LANES];
        mins[j] = fits[j / LANES].neg_min.as_flattened()[j % LANES];
    }
    Groups { scales, mins, fits }
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    k_block::encode_blocks(
        x,
        importance,
        row,
        |x, importance, block: &mut [u8; BYTES]| {
            let groups = match importance {
                None => scales_plain(x, block),
                Some(qw) => scales_important(x, qw, block),
            };
            let (d, dmin) = (f16_at(block, D), f16_at(block, DMIN));
            let mut codes = [0; BLOCK];
            for (j, (codes, x)) in codes
                .as_chunks_mut::<GROUP>()
                .0
                .iter_mut()
                .zip(x.as_chunks::<GROUP>().0)
                .enumerate()
            {
                let sc = block[j];
                let dl = d * f32::from(sc & 15);
                if dl == 0.0 {
                    *codes = x.map(|v| groups.fits[j / LANES].code(j % LANES, v));
                } else {
                    k_block::round_affine(x, dl, dmin * f32::from(sc >> 4), TOP as i32, codes);
                }
            }
            pack_2bit(&codes, &mut block[QS..D]);
        },
    );
}

/// Writes scales, `d` and `dmin` so that the largest scale and the largest minimum get code 15.
fn scales_plain(x: &[f32; BLOCK], block: &mut [u8; BYTES]) -> Groups {
    let size = x.map(f32::abs);
    let w = [search::tile(&size), search::tile(&size[128..])];
    let groups = fit_groups::<true>(
        x,
        &w,
        AffineGrid {
            top: TOP,
            from: -0.5,
            step: 0.1,
            last: 15,
        },
    );
    let largest = |v: &[f32; GROUPS]| v.iter().fold(0.0, |max, s| if *s > max { *s } else { max });
    let (max_scale, max_min) = (largest(&groups.scales), largest(&groups.mins));
    block[..GROUPS].fill(0);
    if max_scale > 0.0 {
        let inverse = SCALE_TOP / max_scale;
        for (sc, s) in block.iter_mut().zip(&groups.scales) {
            *sc = nearest_int(inverse * s) as u8;
        }
    }
    if max_min > 0.0 {
        let inverse = SCALE_TOP / max_min;
        for (sc, m) in block.iter_mut().zip(&groups.mins) {
            *sc |= (nearest_int(inverse * m) << 4) as u8;
        }
    }
    put_f16(
        block,
        D,
        if max_scale > 0.0 {
            max_scale / SCALE_TOP
        } else {
            0.0
        },
    );
    put_f16(
        block,
        DMIN,
        if max_min > 0.0 {
            max_min / SCALE_TOP
        } else {
            0.0
        },
    );
    groups
}

/// Writes scales, `d` and `dmin` as a weighted fit of the groups' scales and minima.
fn scales_important(x: &[f32; BLOCK], qw: &[f32; BLOCK], block: &mut [u8; BYTES]) -> Groups {
    let sigma2 = k_block::sum_of_squares(x) / BLOCK as f32;
    let weights = k_block::importance_weights(x, qw, sigma2);
    let w = [search::tile(&weights), search::tile(&weights[128..])];
    let groups = fit_groups::<false>(
        x,
        &w,
        AffineGrid {
            top: TOP,
            from: -0.9,
            step: 0.05,
            last: 36,
        },
    );
    let mut group_weight = [0.0; GROUPS];
    for (h, w) in w.iter().enumerate() {
        group_weight[LANES * h..LANES * (h + 1)]
            .copy_from_slice(search::group_sums(w).as_flattened());
    }
    let (d, scales) = fit_unsigned(&groups.scales, &group_weight, SCALE_TOP as i32);
    let (dmin, mins) = fit_unsigned(&groups.mins, &group_weight, SCALE_TOP as i32);
    for (sc, (s, m)) in block.iter_mut().zip(scales.iter().zip(&mins)) {
        *sc = s | m << 4;
    }
    put_f16(block, D, d);
    put_f16(block, DMIN, dmin);
    groups
}

fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    let mut sum = 0.0;
    for (x, y) in k_block::block_pairs::<BYTES>(w, act) {
        let codes = unpack_2bit(&x[QS..D]);
        let (mut scaled, mut minima) = (0, 0);
        let groups = codes
            .as_chunks::<GROUP>()
            .0
            .iter()
            .zip(q8_k::quants(y).as_chunks::<GROUP>().0);
        for (j, ((codes, q8), sc)) in groups.zip(&x[..GROUPS]).enumerate() {
            let products = codes
                .iter()
                .zip(q8)
                .map(|(c, q)| i32::from(*c) * i32::from(*q as i8));
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
                let min = if i / GROUP == e / GROUP {
                    0.25 * 5.0
                } else {
                    0.0
                };
                assert_eq!(
                    *y,
                    if i == e { 0.5 * 7.0 * 3.0 - min } else { -min },
                    "element {i} of {e}"
                );
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
