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
use super::num::{f16_at, nearest_int, put_f16, signed_extreme};
use super::q8_k;
use super::search::{self, SymmetricFit, fit_descent, fit_symmetric};
use super::{TypeId, TypeInfo};

const BYTES: usize = 110;
const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const QS: usize = BLOCK / 8;
const SCALES: usize = QS + BLOCK / 4;
const D: usize = SCALES + 12;
const _: () = assert!(D + 2 == BYTES);

/// Groups that are searched side by side, and the vectors they fill.
const LANES: usize = 8;
const V: usize = LANES / 4;
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

/// What the search left behind: the codes of groups whose rounded scale is zero come from here.
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack for one block"
)]
enum Search {
    Descent([[[f32; 4]; GROUPS / 4]; GROUP]),
    Fits([SymmetricFit<V>; GROUPS / LANES]),
}

impl Search {
    fn codes(&self, j: usize, x: &[f32; GROUP]) -> [u8; GROUP] {
        match self {
            Search::Descent(codes) => std::array::from_fn(|i| codes[i][j / 4][j % 4] as u8),
            Search::Fits(fits) => x.map(|v| fits[j / LANES].code(j % LANES, v)),
        }
    }
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    k_block::encode_blocks(
        x,
        importance,
        row,
        |x, importance, block: &mut [u8; BYTES]| {
            let search = match importance {
                None => scales_plain(x, block),
                Some(qw) => scales_important(x, qw, block),
            };
            let d = f16_at(block, D);
            let scales = unpack_scales(&block[SCALES..D]);
            let mut codes = [0; BLOCK];
            let groups = codes
                .as_chunks_mut::<GROUP>()
                .0
                .iter_mut()
                .zip(x.as_chunks::<GROUP>().0);
            for (j, (codes, x)) in groups.enumerate() {
                let dl = d * scales[j] as f32;
                if dl == 0.0 {
                    *codes = search.codes(j, x);
                } else {
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

/// Writes scales and `d` so that the scale of largest magnitude gets code 0.
fn scales_plain(x: &[f32; BLOCK], block: &mut [u8; BYTES]) -> Search {
    // All 16 groups at once: a step of the descent waits for the one before, so width is free.
    let (scales, codes) = fit_descent::<GROUP, { GROUPS / 4 }>(&search::tile(x), HALF as f32);
    let scales = &scales.as_flattened().as_chunks::<GROUPS>().0[0];
    let extreme = signed_extreme(scales);
    if extreme == 0.0 {
        block[SCALES..].fill(0);
        return Search::Descent(codes);
    }
    let inverse = -SCALE_HALF as f32 / extreme;
    let packed = scales.map(|s| {
        let l = i32::from(nearest_int(inverse * s) as i8);
        (l.clamp(-SCALE_HALF, SCALE_HALF - 1) + SCALE_HALF) as u8
    });
    pack_scales(&packed, &mut block[SCALES..D]);
    put_f16(block, D, 1.0 / inverse);
    Search::Descent(codes)
}

/// Writes scales and `d` as a weighted fit of the groups' scales.
fn scales_important(x: &[f32; BLOCK], qw: &[f32; BLOCK], block: &mut [u8; BYTES]) -> Search {
    let sigma2 = 2.0 * k_block::sum_of_squares(x) / BLOCK as f32;
    let weights = k_block::importance_weights(x, qw, sigma2);
    let (mut scales, mut group_weight) = ([0.0; GROUPS], [0.0; GROUPS]);
    let fits = [0, 1].map(|h| {
        let (from, groups) = (GROUP * LANES * h, LANES * h..LANES * (h + 1));
        let w = search::tile(&weights[from..]);
        let fit = fit_symmetric::<GROUP, V>(&search::tile(&x[from..]), &w, HALF as f32);
        scales[groups.clone()].copy_from_slice(fit.scale.as_flattened());
        group_weight[groups].copy_from_slice(search::group_sums(&w).as_flattened());
        fit
    });
    let tile = search::tile::<GROUPS, 1>(&scales);
    let fit = fit_symmetric(&tile, &search::tile(&group_weight), SCALE_HALF as f32);
    pack_scales(&scales.map(|s| fit.code(0, s)), &mut block[SCALES..D]);
    put_f16(block, D, fit.scale[0][0]);
    Search::Fits(fits)
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
                assert_eq!(
                    unpack_scales(&bytes),
                    scales.map(|s| i32::from(s) - SCALE_HALF)
                );
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
            assert!(
                (0..BLOCK).all(|i| y[i] == if i == e { -1.0 } else { 0.0 }),
                "element {e}"
            );
        }
    }

    #[test]
    fn zero_groups_keep_code_zero_of_the_search() {
        let mut block = [0xAA; BYTES];
        encode(&[0.0; BLOCK], None, &mut block);
        assert_eq!(block, [0; BYTES]);
    }
}
