//! The block formats of the types: sizes, scales of groups, levels of weights.

use super::super::TypeId;
use super::super::iq4_nl::LEVELS;
use super::super::k_block::BLOCK as WIDEST;
use super::super::num::f16_at;
use super::{bn, narrow, trellis};

/// Format of the blocks of a type.
pub struct BlockFormat {
    /// The type.
    pub id: TypeId,
    /// Weights of a block.
    pub block: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Bytes before the blocks of a row, which begin with its scale; 0 where every block begins with an f16.
    pub head: usize,
    /// Groups of a block, each with a scale.
    pub groups: usize,
    /// The scale of a group, by the block and the group's number.
    pub scale: fn(&[u8], usize) -> i32,
    /// Writes the levels of a block's weights.
    pub levels: fn(&[u8], &mut [i8; WIDEST]),
    /// Worth of a level, a power of two.
    pub unit: f32,
    /// Tells whether a weight with a level of zero is minus zero.
    pub negative_zero: fn(&[u8], usize) -> bool,
}

/// The format of a block of 256 weights.
const fn of_256(
    id: TypeId,
    bytes: usize,
    head: usize,
    groups: usize,
    scale: fn(&[u8], usize) -> i32,
    levels: fn(&[u8], &mut [i8; WIDEST]),
) -> BlockFormat {
    BlockFormat { id, block: WIDEST, bytes, head, groups, scale, levels, unit: 1.0, negative_zero: |_, _| false }
}

/// A form of fewer weights.
const fn narrow(block: usize, form: BlockFormat) -> BlockFormat {
    BlockFormat { block, ..form }
}

static FORMS: [BlockFormat; 22] = [
    of_256(
        TypeId::IQ2_K,
        76,
        0,
        16,
        |b, g| nibble(&b[4..], g) - 8,
        |b, out| {
            fill(out, &IQ2, |g| second_of_16(b, g), |w| pairs(&b[12..], w));
        },
    ),
    of_256(
        TypeId::IQ3_K,
        110,
        0,
        16,
        |b, g| (2 * nibble(&b[6..], g) + 1) * if bit(&b[4..], g) { -1 } else { 1 },
        |b, out| fill(out, &IQ3, |g| second_of_16(b, g), |w| pairs(&b[14..], w) | high(&b[78..], w) << 2),
    ),
    of_256(
        TypeId::IQ4_K,
        144,
        0,
        16,
        |b, g| six_bits(&b[4..], g),
        |b, out| {
            fill(out, &IQ4, |g| second_of_16(b, g), |w| halves_of_32(&b[16..], w));
        },
    ),
    of_256(
        TypeId::IQ5_K,
        176,
        0,
        16,
        |b, g| six_bits(&b[4..], g),
        |b, out| {
            fill(out, &IQ5, |g| second_of_16(b, g), |w| halves_of_64(&b[16..], w) | high(&b[144..], w) << 4);
        },
    ),
    // The reference also has a polynomial for this table, which no product of it uses.
    of_256(
        TypeId::IQ6_K,
        212,
        0,
        16,
        |b, g| i32::from(b[4 + g] as i8),
        |b, out| {
            fill(out, &IQ6, |g| second_of_16(b, g), |w| halves_of_64(&b[20..], w) | pairs(&b[148..], w) << 4);
        },
    ),
    of_256(
        TypeId::IQ4_KS,
        136,
        4,
        8,
        |b, g| even(b[g]),
        |b, out| {
            fill(out, &IQ4, |g| second_of_bytes(b, g / 2), |w| halves_of_32(&b[8..], w));
        },
    ),
    of_256(
        TypeId::IQ5_KS,
        168,
        4,
        8,
        |b, g| even(b[g]),
        |b, out| {
            fill(out, &IQ5, |g| second_of_bytes(b, g / 2), |w| halves_of_64(&b[8..], w) | high(&b[136..], w) << 4);
        },
    ),
    of_256(
        TypeId::IQ4_KSS,
        128,
        4,
        8,
        |b, g| even(lowest_bits(&b[16 * g..])),
        |b, out| {
            let words: [u8; 128] = std::array::from_fn(|at| {
                let word = u16::from_le_bytes([b[at & !1], b[at | 1]]) & 0xFFFE;
                (word ^ word >> 1).to_le_bytes()[at & 1]
            });
            fill(out, &IQ4, |g| lowest_bits(&b[16 * (g / 2)..]) & 1 == 1, |w| halves_of_32(&words, w));
        },
    ),
    of_256(
        TypeId::IQ2_KS,
        70,
        2,
        8,
        |b, g| (nibble(&b[2..], g) | i32::from(bit(b, 8 + g)) << 4) - 16,
        |b, out| fill(out, &IQ2, |g| second_of_iq2_ks(b, g / 2), |w| pairs(&b[6..], w)),
    ),
    of_256(
        TypeId::IQ3_KS,
        102,
        2,
        8,
        |b, g| (upper_last(&b[2..], g) | i32::from(bit(b, g)) << 4) - 16,
        |b, out| fill(out, &IQ3, |g| second_of_iq3_ks(b, g / 2), |w| pairs(&b[6..], w) | high(&b[70..], w) << 2),
    ),
    of_256(
        TypeId::IQ2_KL,
        86,
        2,
        8,
        |b, g| (upper_last(&b[2..], g) | i32::from(b[g / 4] >> (2 * (g % 4)) & 3) << 4) - 32,
        |b, out| {
            for (pair, y) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let (g, m) = (pair / 16, pair % 16);
                let low = b[6 + 16 * (g / 2) + m] >> (4 * (g % 2)) & 15;
                *y = POINTS[usize::from(low | (b[70 + m] >> g & 1) << 4)];
            }
        },
    ),
    of_256(TypeId::IQ1_KT, 56, 4, 8, |b, g| i32::from(IQ4[usize::from(b[g] & 15)]), trellis::iq1_kt),
    of_256(TypeId::IQ2_KT, 68, 4, 8, |b, g| i32::from(IQ4[upper_last(b, g) as usize]), trellis::iq2_kt),
    BlockFormat {
        negative_zero: trellis::iq3_kt_sign,
        ..of_256(TypeId::IQ3_KT, 100, 4, 8, upper_last, trellis::iq3_kt)
    },
    of_256(TypeId::IQ4_KT, 128, 4, 8, trellis::iq4_kt_scale, trellis::iq4_kt),
    of_256(TypeId::Q8_K_R1, 258, 0, 1, |_, _| 1, |b, out| narrow::bytes(&b[2..], out)),
    narrow(32, of_256(TypeId::Q6_0, 26, 0, 1, |_, _| 1, narrow::q6_0)),
    narrow(32, of_256(TypeId::Q8_KV, 32, 8, 1, |_, _| 1, narrow::bytes)),
    narrow(64, of_256(TypeId::IQ1_BN, 13, 2, 2, |_, _| 1, bn::iq1_bn)),
    narrow(64, of_256(TypeId::IQ2_BN, 16, 4, 2, |_, _| 1, bn::iq2_bn)),
    BlockFormat { unit: 0.125, ..narrow(32, of_256(TypeId::IQ1_S_R1, 6, 2, 1, narrow::iq1_s_scale, narrow::iq1_s)) },
    BlockFormat { unit: 0.125, ..narrow(32, of_256(TypeId::IQ1_M_R1, 7, 2, 2, narrow::iq1_m_scale, narrow::iq1_m)) },
];

/// The form of a type: how its blocks become scales and levels.
///
/// # Panics
/// When the type has none, being no base type of ik_llama.cpp.
pub const fn form(id: TypeId) -> &'static BlockFormat {
    let mut i = 0;
    while i < FORMS.len() {
        if FORMS[i].id.0 == id.0 {
            return &FORMS[i];
        }
        i += 1;
    }
    panic!("a type without a form")
}

/// The scale that the groups of a block are multiplied with.
#[inline(always)]
pub(super) fn scale_of(form: &BlockFormat, row: f32, block: &[u8]) -> f32 {
    if form.head == 0 { f16_at(block, 0) } else { row }
}

/// A table and, behind it, the same raised by `by`.
const fn with_raised<const N: usize, const TWICE: usize>(plain: [i8; N], by: i8) -> [i8; TWICE] {
    assert!(TWICE == 2 * N);
    let mut all = [0; TWICE];
    let mut i = 0;
    while i < TWICE {
        all[i] = plain[i % N] + if i < N { 0 } else { by };
        i += 1;
    }
    all
}

/// Levels of codes of two bits; the second half is chosen by a bit of the group.
pub static IQ2: [i8; 8] = with_raised([-31, -13, 1, 17], 5);
/// Levels of the types with codes of three bits.
pub static IQ3: [i8; 16] = with_raised([-63, -40, -23, -10, 1, 13, 28, 47], 4);
/// Levels of the types with codes of four bits.
pub static IQ4: [i8; 32] = with_raised(LEVELS, 4);
/// Levels of the types with codes of five bits.
pub static IQ5: [i8; 64] = with_raised(
    [
        -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6, -1, 5, 11, 17, 23, 29, 36,
        43, 51, 59, 68, 77, 87, 97, 109, 121,
    ],
    2,
);
/// Levels of the type with codes of six bits.
pub(super) static IQ6: [i8; 128] = with_raised(
    [
        -127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54, -51, -47, -44, -40, -37,
        -34, -31, -28, -25, -22, -19, -16, -13, -11, -8, -5, -2, 0, 3, 6, 9, 12, 14, 17, 20, 23, 27, 30, 33, 36, 40,
        44, 47, 51, 55, 59, 63, 68, 72, 77, 82, 87, 92, 98, 103, 109, 115, 121,
    ],
    1,
);

/// The pairs of weights of IQ2_KL.
pub static POINTS: [[i8; 2]; 32] = [
    [-63, -23],
    [-63, 13],
    [-40, -63],
    [-40, -10],
    [-40, 13],
    [-40, 47],
    [-23, -40],
    [-23, -23],
    [-23, 1],
    [-23, 13],
    [-23, 28],
    [-10, -63],
    [-10, 1],
    [-10, 13],
    [-10, 47],
    [1, -23],
    [1, -10],
    [1, 1],
    [1, 13],
    [1, 28],
    [13, -40],
    [13, -23],
    [13, -10],
    [13, 1],
    [13, 13],
    [28, -63],
    [28, -23],
    [28, 1],
    [28, 28],
    [28, 47],
    [47, -23],
    [47, 13],
];

/// Writes the levels of all weights: codes in a table, of which sixteens of weights use the first or the second half.
#[inline(always)]
fn fill(out: &mut [i8; WIDEST], table: &[i8], second: impl Fn(usize) -> bool, code: impl Fn(usize) -> u8) {
    let (first, raised) = table.split_at(table.len() / 2);
    for (g, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let half = if second(g) { raised } else { first };
        for (j, out) in out.iter_mut().enumerate() {
            *out = half[usize::from(code(16 * g + j))];
        }
    }
}

/// Tells whether sixteen weights use the second half of the table: types with a scale per block.
pub(super) fn second_of_16(b: &[u8], g: usize) -> bool {
    bit(&b[2..], g)
}

/// The same of 32 weights: IQ4_KS and IQ5_KS.
pub(super) fn second_of_bytes(b: &[u8], g: usize) -> bool {
    b[g] & 1 == 1
}

/// The same: IQ2_KS.
pub(super) fn second_of_iq2_ks(b: &[u8], g: usize) -> bool {
    bit(b, g)
}

/// The same: IQ3_KS.
pub(super) fn second_of_iq3_ks(b: &[u8], g: usize) -> bool {
    bit(b, 8 + g)
}

/// Bit `i` of a string of bits.
#[inline]
fn bit(bytes: &[u8], i: usize) -> bool {
    bytes[i / 8] >> (i % 8) & 1 == 1
}

/// Nibble `i`, the lower of a byte first.
#[inline]
fn nibble(bytes: &[u8], i: usize) -> i32 {
    i32::from(bytes[i / 2] >> (4 * (i % 2)) & 15)
}

/// Nibble `i` of eight, the lower ones of four bytes first.
#[inline]
pub(super) fn upper_last(bytes: &[u8], i: usize) -> i32 {
    i32::from(bytes[i % 4] >> (4 * (i / 4)) & 15)
}

/// Scale `g` of sixteen, of six bits: four bytes of their upper bits, then eight of the lower.
#[inline]
fn six_bits(bytes: &[u8], g: usize) -> i32 {
    (nibble(&bytes[4..], g) | i32::from(bytes[g / 4] >> (2 * (g % 4)) & 3) << 4) - 32
}

/// The scale of a byte whose lowest bit means something else.
#[inline]
fn even(byte: u8) -> i32 {
    i32::from(byte & 254) - 127
}

/// The lowest bits of eight words as a byte.
#[inline]
fn lowest_bits(bytes: &[u8]) -> u8 {
    (0..8).fold(0, |all, k| all | (bytes[2 * k] & 1) << k)
}

/// The code of weight `w`: two bits, as in Q2_K.
#[inline]
fn pairs(qs: &[u8], w: usize) -> u8 {
    qs[32 * (w / 128) + w % 32] >> (2 * (w / 32 % 4)) & 3
}

/// The code of weight `w`: four bits, as in IQ4_XS.
#[inline]
fn halves_of_32(qs: &[u8], w: usize) -> u8 {
    qs[16 * (w / 32) + w % 16] >> (4 * (w / 16 % 2)) & 15
}

/// The code of weight `w`: four bits, as in Q4_K.
#[inline]
fn halves_of_64(qs: &[u8], w: usize) -> u8 {
    qs[32 * (w / 64) + w % 32] >> (4 * (w / 32 % 2)) & 15
}

/// The upper bit of the code of weight `w`, as in Q5_K.
#[inline]
fn high(qh: &[u8], w: usize) -> u8 {
    qh[w % 32] >> (w / 32) & 1
}
