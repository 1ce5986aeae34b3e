//! Codes from bit planes, 512 weights at a time: planes are woven together byte by byte, then the bits of every eight
//! bytes are transposed by one instruction.
//!
//! A register of a plane has the words of eight blocks. Weaving `b` of them gives quadwords of eight bytes of which
//! each is eight weights' bits of one plane; as a matrix of bits, transposed, that is eight codes. Up to four planes
//! share a quadword with those of another block: one code in the lower, one in the upper half of each byte.

use std::arch::x86_64::*;

use super::lut::Bytes;

/// Where the blocks are once two planes are woven: the lower half of each 128 bits gives the even blocks (0, 2, 4, 6),
/// the upper half the odd ones. Slot `s` of such a register is block `2s` or `2s + 1`.
const SLOTS: usize = 4;

/// Order of four woven planes from two registers of two: quadword `g` gets byte `g` of the planes of slot `first + 1`,
/// then those of slot `first`.
const fn fours(first: usize) -> Bytes {
    let mut out = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (g, plane) = (i / 8, i % 4);
        let slot = if i % 8 < 4 { first + 1 } else { first };
        out[i] = (64 * (plane / 2) + 16 * slot + 2 * g + plane % 2) as u8;
        i += 1;
    }
    Bytes(out)
}

/// The same from a register of two planes and one of a single plane, the third; before them anything.
const fn threes(odd: usize, first: usize) -> Bytes {
    let mut out = [0; 64];
    let mut i = 0;
    while i < 64 {
        let g = i / 8;
        let slot = if i % 8 < 4 { first + 1 } else { first };
        out[i] = match i % 4 {
            3 => 64 + 8 * (2 * slot + odd) + g,
            2 => 16 * slot + 2 * g + 1,
            _ => 16 * slot + 2 * g,
        } as u8;
        i += 1;
    }
    Bytes(out)
}

/// Order of a block with more than four planes: the upper ones, of which `upper(g, i)` is where, then the lower four
/// from the half of each quadword that slot `slot` is in.
macro_rules! join {
    ($slot:expr, |$g:ident, $i:ident| $upper:expr) => {{
        let mut out = [0; 64];
        let mut at = 0;
        while at < 64 {
            let ($g, $i) = (at / 8, at % 8);
            let half = if $slot % 2 == 1 { 0 } else { 4 };
            out[at] = if $i < 4 { $upper } else { 64 + 8 * $g + half + $i - 4 } as u8;
            at += 1;
        }
        Bytes(out)
    }};
}

const fn join_one(block: usize) -> Bytes {
    join!(block / 2, |g, i| 8 * block + g)
}

const fn join_two(slot: usize) -> Bytes {
    join!(slot, |g, i| 16 * slot + 2 * g + i % 2)
}

const fn join_four(slot: usize) -> Bytes {
    join!(slot, |g, i| 8 * g + if slot % 2 == 1 { i } else { 4 + i })
}

static FOURS: [Bytes; 2] = [fours(0), fours(2)];
static THREES: [[Bytes; 2]; 2] = [[threes(0, 0), threes(0, 2)], [threes(1, 0), threes(1, 2)]];
static JOIN_ONE: [Bytes; 8] =
    [join_one(0), join_one(1), join_one(2), join_one(3), join_one(4), join_one(5), join_one(6), join_one(7)];
static JOIN_TWO: [Bytes; SLOTS] = [join_two(0), join_two(1), join_two(2), join_two(3)];
static JOIN_FOUR: [Bytes; 2] = [join_four(0), join_four(1)];

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn pick(a: __m512i, order: &Bytes, b: __m512i) -> __m512i {
    _mm512_permutex2var_epi8(a, order.load(), b)
}

/// Two planes woven: even blocks, odd blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn two(a: __m512i, b: __m512i) -> [__m512i; 2] {
    [_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)]
}

/// Four planes woven; by `[odd][slot / 2]`, each of the two slots in one half of the quadwords.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn four(p: [__m512i; 4]) -> [[__m512i; 2]; 2] {
    let (a, b) = (two(p[0], p[1]), two(p[2], p[3]));
    [
        [pick(a[0], &FOURS[0], b[0]), pick(a[0], &FOURS[1], b[0])],
        [pick(a[1], &FOURS[0], b[1]), pick(a[1], &FOURS[1], b[1])],
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn three(p: [__m512i; 3]) -> [[__m512i; 2]; 2] {
    let a = two(p[0], p[1]);
    let pick = |odd: usize, half: usize| pick(a[odd], &THREES[odd][half], p[2]);
    [[pick(0, 0), pick(0, 1)], [pick(1, 0), pick(1, 1)]]
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn transpose(m: __m512i) -> __m512i {
    let columns = _mm512_set1_epi64(0x8040_2010_0804_0201_u64.cast_signed());
    _mm512_gf2p8affine_epi64_epi8::<0>(columns, m)
}

/// The codes of eight blocks from as many words of each plane, the leading one first; what a byte has above the bits of
/// its code means nothing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn codes<const B: usize>(p: [__m512i; B]) -> [__m512i; 8] {
    // of four planes or less: whatever is in the place of the missing ones is above the code
    let last = |i: usize| p[(B + i).saturating_sub(4)];
    let lower = four([last(0), last(1), last(2), last(3)]);
    let mut out = [_mm512_setzero_si512(); 8];
    if B <= 4 {
        for (odd, halves) in lower.into_iter().enumerate() {
            for (half, m) in halves.into_iter().enumerate() {
                let two = transpose(m);
                out[4 * half + odd] = two;
                out[4 * half + 2 + odd] = _mm512_srli_epi16::<4>(two);
            }
        }
        return out;
    }
    let first = |i: usize| p[if i < B { i } else { 0 }];
    let upper = match B {
        5 => [[p[0]; 2]; 2],
        6 => two(first(0), first(1)).map(|h| [h; 2]),
        7 => three([first(0), first(1), first(2)]),
        _ => four([first(0), first(1), first(2), first(3)]),
    };
    for (block, out) in out.iter_mut().enumerate() {
        let (slot, odd) = (block / 2, block % 2);
        let order = match B {
            5 => &JOIN_ONE[block],
            6 => &JOIN_TWO[slot],
            _ => &JOIN_FOUR[slot % 2],
        };
        *out = transpose(pick(upper[odd][slot / 2], order, lower[odd][slot / 2]));
    }
    out
}
