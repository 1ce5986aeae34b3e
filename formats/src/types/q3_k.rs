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

use super::k_block::{self, BLOCK, pack_2bit, unpack_2bit};
use super::num::{f16_at, nearest_int, put_f16};
use super::q8_k;
use super::search::{self, fit_descent, fit_symmetric};
use super::{TypeId, TypeInfo};

const BYTES: usize = 110;
const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const QS: usize = BLOCK / 8;
const SCALES: usize = QS + BLOCK / 4;
const D: usize = SCALES + 12;
const _: () = assert!(D + 2 == BYTES);

/// Groups that are searched side by side.
const LANES: usize = 8;
/// The code of zero.
const HALF: i32 = 4;
/// The code of scale zero.
const SCALE_HALF: i32 = 32;

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::Q3_K,
    name: "q3_K",
    block: BLOCK,
    bytes: BYTES,
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
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
    for (p, (codes, low)) in codes
        .as_chunks_mut::<32>()
        .0
        .iter_mut()
        .zip(low.as_chunks::<32>().0)
        .enumerate()
    {
        for l in 0..32 {
            codes[l] = (low[l] | ((block[l] >> p) & 1) << 2) as i8 - HALF as i8;
        }
    }
    codes
}

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let d = f16_at(block, D);
        let codes = unpack_codes(block);
        let groups = y
            .as_chunks_mut::<GROUP>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<GROUP>().0);
        for ((y, codes), sc) in groups.zip(unpack_scales(&block[SCALES..D])) {
            let dl = d * sc as f32;
            for (y, c) in y.iter_mut().zip(codes) {
                *y = dl * f32::from(*c);
            }
        }
    });
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    k_block::encode_blocks(
        x,
        importance,
        row,
        |x, importance, block: &mut [u8; BYTES]| {
            let mut codes = match importance {
                None => scales_plain(x, block),
                Some(qw) => scales_important(x, qw, block),
            };
            let d = f16_at(block, D);
            let groups = codes
                .as_chunks_mut::<GROUP>()
                .0
                .iter_mut()
                .zip(x.as_chunks::<GROUP>().0);
            for ((codes, x), sc) in groups.zip(unpack_scales(&block[SCALES..D])) {
                let dl = d * sc as f32;
                if dl != 0.0 {
                    k_block::round_symmetric(x, dl, HALF, codes);
                }
            }
            let mut high = [0; QS];
            for (p, codes) in codes.as_chunks::<QS>().0.iter().enumerate() {
                for (h, c) in high.iter_mut().zip(codes) {
                    *h |= (c >> 2) << p;
                }
            }
            block[..QS].copy_from_slice(&high);
            pack_2bit(&codes, &mut block[QS..SCALES]);
        },
    );
}

/// Writes scales and `d` so that the scale of largest magnitude gets code 0; returns the codes that the
/// search gave, which stay where the rounded scale is zero.
fn scales_plain(x: &[f32; BLOCK], block: &mut [u8; BYTES]) -> [u8; BLOCK] {
    let mut codes = [0; BLOCK];
    let mut scales = [0.0f32; GROUPS];
    for (h, x) in x.as_chunks::<{ GROUP * LANES }>().0.iter().enumerate() {
        let (scale, tile) = fit_descent::<GROUP, LANES>(&search::tile(x), HALF as f32);
        scales[LANES * h..LANES * (h + 1)].copy_from_slice(&scale);
        for (e, c) in codes[GROUP * LANES * h..GROUP * LANES * (h + 1)]
            .iter_mut()
            .enumerate()
        {
            *c = tile[e % GROUP][e / GROUP] as u8;
        }
    }
    let extreme = super::num::signed_extreme(&scales);
    if extreme == 0.0 {
        block[SCALES..].fill(0);
        return codes;
    }
    let inverse = -SCALE_HALF as f32 / extreme;
    let packed = scales.map(|s| {
        let l = i32::from(nearest_int(inverse * s) as i8);
        (l.min(SCALE_HALF - 1).max(-SCALE_HALF) + SCALE_HALF) as u8
    });
    pack_scales(&packed, &mut block[SCALES..D]);
    put_f16(block, D, 1.0 / inverse);
    codes
}

/// Writes scales and `d` as a weighted fit of the groups' scales; returns the codes of the search.
fn scales_important(x: &[f32; BLOCK], qw: &[f32; BLOCK], block: &mut [u8; BYTES]) -> [u8; BLOCK] {
    let sigma2 = 2.0 * k_block::sum_of_squares(x) / BLOCK as f32;
    let weights = k_block::importance_weights(x, qw, sigma2);
    let mut codes = [0; BLOCK];
    let (mut scales, mut group_weight) = ([[0.0]; GROUPS], [[0.0]; GROUPS]);
    for h in 0..GROUPS / LANES {
        let from = GROUP * LANES * h;
        let w = search::tile(&weights[from..]);
        let fit = fit_symmetric::<GROUP, LANES>(&search::tile(&x[from..]), &w, HALF as f32);
        let sums = search::group_sums(&w);
        for k in 0..LANES {
            scales[LANES * h + k] = [fit.scale[k]];
            group_weight[LANES * h + k] = [sums[k]];
        }
        for (e, c) in codes[from..from + GROUP * LANES].iter_mut().enumerate() {
            *c = fit.code(e / GROUP, x[from + e]);
        }
    }
    let fit = fit_symmetric::<GROUPS, 1>(&scales, &group_weight, SCALE_HALF as f32);
    pack_scales(&scales.map(|[s]| fit.code(0, s)), &mut block[SCALES..D]);
    put_f16(block, D, fit.scale[0]);
    codes
}

fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (x, y) in k_block::block_pairs::<BYTES>(w, act) {
        let sums = k_block::lane_sums(
            &unpack_codes(x),
            q8_k::quants(y),
            &unpack_scales(&x[SCALES..D]),
        );
        let d = f16_at(x, D) * q8_k::scale(y);
        for (lane, sum) in lanes.iter_mut().zip(sums) {
            *lane += d * sum as f32;
        }
    }
    lanes.iter().fold(0.0, |sum, lane| sum + lane)
}
