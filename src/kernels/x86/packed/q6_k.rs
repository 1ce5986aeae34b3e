//! Q6_K, 16 rows interleaved.
//!
//! A group holds pairs of blocks (6720 bytes, as 16 rows have in the file), the last alone if their number is odd:
//!
//! ```text
//! byte   0                        32                          64       3392
//!        | d of the first: f16 .. | d of the second: f16 ..   | first  | second    ..6720
//! block  0              256
//!        | 4 x 64 B     | 8 parts of 6 x 64 B of codes
//! scales: line g, row r  = scales 4g .. 4g + 3 of row r
//! ```
//!
//! Part l has the codes of the elements that are l mod 8. Its unit J = 0..8 is the elements 32J + l + 8i, i = 0..4,
//! byte i of row r: the first two belong to scale 2J, the others to 2J + 1. Line k has unit k in the low 6 bits.
//! The upper 2 bits of lines 0, 1, 2 are bits 5..4, 3..2, 1..0 of unit 6, those of lines 3, 4, 5 of unit 7.
//!
//! With few tokens, `maddubs` multiplies codes 0..63 with activations and one `dpwssd` applies two scales; another
//! takes back the excess of 32 by way of -32 times the pair sums of the activations. With more, a part is
//! expanded to i16 products of weight and scale, and one `dpwssd` does all for two columns.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;

use super::check;
use super::lanes::{
    BLOCK, CHAINS, Q8_K, ROWS, TILE, Tile, broadcast, by_lane, count_rows, dpwssd, dpwssd_at,
    finish, load, scales, step, store, unroll,
};
use crate::kernels::packed::{Encoding, Packing};

/// Offsets in a block of the file.
const FILE: usize = 210;
const FILE_HIGH: usize = 128;
const FILE_SCALES: usize = 192;
const FILE_D: usize = 208;
/// Offsets in a block of the group, without its d.
const CODES: usize = 256;
const PART: usize = 384;
const BYTES: usize = CODES + CHAINS * PART;
/// The line of the d before a pair of blocks.
const D: usize = 64;
const _: () = assert!(D + 2 * BYTES == 2 * ROWS * FILE);

/// Arranged activations of a block: the quants by lane; -32 times the sum of each two neighbours of them that
/// share a scale, i16; the quants as i16; the scale.
const ACT: usize = 1088;
const CORRECTION: usize = 256;
const WIDE: usize = 512;
const SCALE: usize = 1024;

/// From this many tokens on, the expansion pays.
const MANY: usize = 4;

pub(super) static Q6_K: Packing = Packing {
    name: "q6_k x16",
    dense: false,
    rows: ROWS,
    encoding: Encoding::Type(TypeId::Q8_K),
    group_bytes,
    pack,
    acts: "q8_k by lane, wide",
    act_bytes,
    arrange,
    multiply,
};

fn group_bytes(n: usize) -> usize {
    let blocks = n / BLOCK;
    blocks.div_ceil(2) * D + blocks * BYTES
}

/// Where the d and the rest of block b are.
#[inline(always)]
fn at(b: usize) -> (usize, usize) {
    let pair = b / 2 * (D + 2 * BYTES);
    (pair + b % 2 * (D / 2), pair + D + b % 2 * BYTES)
}

/// The 6 lines of a row's block, not yet split into parts.
fn lines(block: &[u8]) -> [[u8; 32]; 6] {
    let mut units = [[0; 32]; 8];
    let (low, high) = (&block[..FILE_HIGH], &block[FILE_HIGH..FILE_SCALES]);
    for (h, units) in units.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        for e in 0..32 {
            let (a, b, high) = (low[64 * h + e], low[64 * h + 32 + e], high[32 * h + e]);
            units[0][e] = a & 15 | (high & 3) << 4;
            units[1][e] = b & 15 | (high >> 2 & 3) << 4;
            units[2][e] = a >> 4 | (high >> 4 & 3) << 4;
            units[3][e] = b >> 4 | (high >> 6) << 4;
        }
    }
    let mut lines = [[0; 32]; 6];
    for (k, line) in lines.iter_mut().enumerate() {
        let (own, other, shift) = (&units[k], &units[6 + k / 3], 4 - 2 * (k % 3));
        for e in 0..32 {
            line[e] = own[e] | other[e] >> shift << 6;
        }
    }
    lines
}

fn pack(w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = n / BLOCK * FILE;
    let rows = count_rows(w, row_bytes);
    if rows == 0 {
        return true;
    }
    for b in 0..n / BLOCK {
        let (d, rest) = at(b);
        for r in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let block = &w[r.min(rows - 1) * row_bytes + b * FILE..][..FILE];
            out[d + 2 * r..][..2].copy_from_slice(&block[FILE_D..]);
            let out = &mut out[rest..][..BYTES];
            for g in 0..4 {
                out[64 * g + 4 * r..][..4].copy_from_slice(&block[FILE_SCALES + 4 * g..][..4]);
            }
            for (k, q) in lines(block).iter().enumerate() {
                for l in 0..CHAINS {
                    let to = CODES + PART * l + 64 * k + 4 * r;
                    out[to..][..4].copy_from_slice(&[q[l], q[l + 8], q[l + 16], q[l + 24]]);
                }
            }
        }
    }
    true
}

/// An odd number of cache lines: rows of a tile then do not fall on the same few sets of the cache.
fn act_bytes(n: usize) -> usize {
    let lines = n / BLOCK * (ACT / 64);
    64 * (lines | 1)
}

fn arrange(act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.as_chunks_mut::<ACT>().0) {
        // SAFETY: handed out only where the instruction set was detected.
        unsafe { arrange_block(act, out) };
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn arrange_block(act: &[u8; Q8_K], out: &mut [u8; ACT]) {
    let lines = out.as_chunks_mut().0;
    for (i, q) in by_lane(&act[4..].as_chunks().0[0]).into_iter().enumerate() {
        store(&mut lines[i], q);
        let excess = _mm512_maddubs_epi16(_mm512_set1_epi8(32), q);
        let correction = _mm512_sub_epi16(_mm512_setzero_si512(), excess);
        store(&mut lines[CORRECTION / 64 + i], correction);
        let (low, high) = (_mm512_castsi512_si256(q), _mm512_extracti64x4_epi64::<1>(q));
        store(&mut lines[WIDE / 64 + 2 * i], _mm512_cvtepi8_epi16(low));
        store(
            &mut lines[WIDE / 64 + 2 * i + 1],
            _mm512_cvtepi8_epi16(high),
        );
    }
    out[SCALE..][..4].copy_from_slice(&act[..4]);
}

fn multiply(group: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    check(&Q6_K, group, acts, n, tokens, out);
    let act = act_bytes(n);
    let blocks = n / BLOCK;
    for (acts, out) in acts.chunks(TILE * act).zip(out.chunks_mut(TILE * ROWS)) {
        let (w, y) = (group.as_ptr(), acts.as_ptr());
        // SAFETY: handed out only where the instruction set was detected; all lengths are as `check` saw.
        unsafe {
            match out.len() / ROWS {
                1 => few::<1>(w, y, blocks, act, out),
                2 => few::<2>(w, y, blocks, act, out),
                3 => few::<3>(w, y, blocks, act, out),
                MANY.. => many(w, y, blocks, act, out),
                0 => {}
            }
        }
    }
}

/// The codes of a part, 0..63.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn unpack(part: *const u8) -> [__m512i; 8] {
    let low6 = _mm512_set1_epi8(0x3F);
    let mut lines = [low6; 6];
    let mut codes = [low6; 8];
    for (k, line) in lines.iter_mut().enumerate() {
        // SAFETY: the caller's part has six lines.
        *line = unsafe { load(part.add(64 * k)) };
        codes[k] = _mm512_and_si512(*line, low6);
    }
    for (unit, lines) in codes[6..].iter_mut().zip(lines.as_chunks::<3>().0) {
        let pieces = [
            _mm512_srli_epi16::<2>(lines[0]),
            _mm512_srli_epi16::<4>(lines[1]),
            _mm512_srli_epi16::<6>(lines[2]),
        ];
        // Bits of the mask from the first, the others from the second.
        let select = |mask, a, b| _mm512_ternarylogic_epi32::<0xCA>(mask, a, b);
        let upper = select(_mm512_set1_epi8(0x30), pieces[0], pieces[1]);
        let all = select(_mm512_set1_epi8(0x3C), upper, pieces[2]);
        *unit = _mm512_and_si512(all, low6);
    }
    codes
}

/// Byte shuffles: bytes 0 and 1, or 2 and 3 of each dword become the upper bytes of its i16.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs() -> [__m512i; 2] {
    [
        _mm512_broadcast_i32x4(_mm_setr_epi8(
            -1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13,
        )),
        _mm512_broadcast_i32x4(_mm_setr_epi8(
            -1, 2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15,
        )),
    ]
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn few<const T: usize>(
    w: *const u8,
    acts: *const u8,
    blocks: usize,
    act: usize,
    out: &mut [f32],
) {
    let zero = _mm512_setzero_ps();
    let mut chains = [[zero; T]; CHAINS];
    let pairs = pairs();
    for b in 0..blocks {
        // SAFETY: block b is there, of all activations too, as `check` saw.
        unsafe {
            let y = acts.add(ACT * b);
            let (d, block) = at(b);
            let (d, block) = (scales(w.add(d)), w.add(block));
            let mut pair = [_mm512_setzero_si512(); 8];
            for (j, pair) in pair.iter_mut().enumerate() {
                let bytes = load(block.add(j / 2 * 64));
                let bytes = _mm512_shuffle_epi8(bytes, pairs[j % 2]);
                *pair = _mm512_srai_epi16::<8>(bytes);
            }
            let mut product = [zero; T];
            for (t, product) in product.iter_mut().enumerate() {
                let dy = _mm512_castsi512_ps(broadcast(y.add(act * t + SCALE)));
                *product = _mm512_mul_ps(d, dy);
            }
            for (l, chains) in chains.iter_mut().enumerate() {
                let codes = unpack(block.add(CODES + PART * l));
                for (t, chain) in chains.iter_mut().enumerate() {
                    let y = y.add(act * t + 32 * l);
                    let mut sum = _mm512_setzero_si512();
                    let mut excess = _mm512_setzero_si512();
                    unroll!(J in [0 1 2 3 4 5 6 7] {
                        let sums = _mm512_maddubs_epi16(codes[J], broadcast(y.add(4 * J)));
                        sum = dpwssd(sum, sums, pair[J]);
                        excess = dpwssd_at::<{ CORRECTION + 4 * J }>(excess, pair[J], y);
                    });
                    let sum = _mm512_add_epi32(sum, excess);
                    *chain = step(*chain, product[t], sum);
                }
            }
        }
    }
    for (t, out) in out.chunks_exact_mut(ROWS).enumerate() {
        finish(zero, chains.map(|chains| chains[t]), out);
    }
}

/// 128 times each scale, in both i16 of its row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn spread_scales(block: *const u8) -> [__m512i; 16] {
    // Byte 0 of each dword becomes the upper byte of both i16.
    let first = _mm_setr_epi8(-1, 0, -1, 0, -1, 4, -1, 4, -1, 8, -1, 8, -1, 12, -1, 12);
    let first = _mm512_broadcast_i32x4(first);
    let mut scale = [_mm512_setzero_si512(); 16];
    for (j, scale) in scale.iter_mut().enumerate() {
        // SAFETY: the caller's block has four lines of scales.
        let line = unsafe { load(block.add(j / 4 * 64)) };
        let index = _mm512_add_epi8(first, _mm512_set1_epi16(((j % 4) << 8) as i16));
        *scale = _mm512_srai_epi16::<1>(_mm512_shuffle_epi8(line, index));
    }
    scale
}

/// Products of the weights of a part and their scales, in the order of the wide activations.
/// `scale`: of [`spread_scales`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn expand(part: *const u8, scale: &[__m512i; 16]) -> [__m512i; 16] {
    // SAFETY: the caller's part has six lines.
    let codes = unsafe { unpack(part) };
    let pairs = pairs();
    let mut products = *scale;
    unroll!(J in [0 1 2 3 4 5 6 7] {
        let weights = _mm512_sub_epi8(codes[J], _mm512_set1_epi8(32));
        // 256 times the weight, 128 times the scale: the instruction divides by 2^15, here without a rest.
        let first = _mm512_shuffle_epi8(weights, pairs[0]);
        products[2 * J] = _mm512_mulhrs_epi16(first, scale[2 * J]);
        let second = _mm512_shuffle_epi8(weights, pairs[1]);
        products[2 * J + 1] = _mm512_mulhrs_epi16(second, scale[2 * J + 1]);
    });
    products
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn many(w: *const u8, acts: *const u8, blocks: usize, act: usize, out: &mut [f32]) {
    let mut tile = Tile::new();
    let tile = tile.start(out.len() / ROWS);
    for b in 0..blocks {
        // SAFETY: block b is there, of all activations too, as `check` saw.
        unsafe {
            let y = acts.add(ACT * b);
            let (d, block) = at(b);
            let (d, block) = (scales(w.add(d)), w.add(block));
            for (t, token) in tile.iter_mut().enumerate() {
                let dy = _mm512_castsi512_ps(broadcast(y.add(act * t + SCALE)));
                token.d = _mm512_mul_ps(d, dy);
            }
            let scale = spread_scales(block);
            for l in 0..CHAINS {
                let products = expand(block.add(CODES + PART * l), &scale);
                let y = y.add(WIDE + 64 * l);
                let whole = tile.len() & !3;
                for t in (0..whole).step_by(4) {
                    let mut sum = [_mm512_setzero_si512(); 4];
                    unroll!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                        for (i, sum) in sum.iter_mut().enumerate() {
                            let y = y.add(act * (t + i));
                            *sum = dpwssd_at::<{ 4 * J }>(*sum, products[J], y);
                        }
                    });
                    for (i, sum) in sum.into_iter().enumerate() {
                        // The token's quants of the next part: in a pass over the tile each line is used once.
                        let next = y.wrapping_add(act * (t + i) + 64);
                        _mm_prefetch::<_MM_HINT_T0>(next.cast());
                        let token = &mut tile[t + i];
                        token.chains[l] = step(token.chains[l], token.d, sum);
                    }
                }
                for (t, token) in tile.iter_mut().enumerate().skip(whole) {
                    let mut sum = [_mm512_setzero_si512(); 2];
                    let y = y.add(act * t);
                    unroll!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                        sum[J % 2] = dpwssd_at::<{ 4 * J }>(sum[J % 2], products[J], y);
                    });
                    let sum = _mm512_add_epi32(sum[0], sum[1]);
                    token.chains[l] = step(token.chains[l], token.d, sum);
                }
            }
        }
    }
    for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        finish(token.minus, token.chains, out);
    }
}
