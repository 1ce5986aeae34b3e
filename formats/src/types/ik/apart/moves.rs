//! Where the bits of interleaved rows come from and go to.

use super::super::super::TypeId;

/// A type of interleaved rows.
pub struct Interleaved {
    pub(super) id: TypeId,
    /// The type that its rows become.
    pub base: TypeId,
    /// Rows of a group.
    pub rows: usize,
    pub(super) moves: &'static [Move],
}

/// A move of `count` fields of `bits` bits each, from the block of a group to the block of row `k`.
#[derive(Clone, Copy)]
pub(super) struct Move {
    bits: usize,
    count: usize,
    /// First bit of a field in the group's block, by row and number of the field.
    from: fn(usize, usize) -> usize,
    /// First bit of a field in the row's block.
    to: fn(usize) -> usize,
}

impl Move {
    /// Adds the fields of row `k` to `to`, which begins as zeros, without carry.
    pub(super) fn run(&self, k: usize, from: &[u8], to: &mut [u8]) {
        for e in 0..self.count {
            let (mut at, mut place, mut left) = ((self.from)(k, e), (self.to)(e), self.bits);
            // as many bits at a time as lie in one byte on both sides
            while left > 0 {
                let n = left.min(8 - at % 8).min(8 - place % 8);
                let value = u16::from(from[at / 8]) >> (at % 8) & ((1 << n) - 1);
                to[place / 8] ^= (value << (place % 8)) as u8;
                (at, place, left) = (at + n, place + n, left - n);
            }
        }
    }
}

const fn of(bits: usize, count: usize, from: fn(usize, usize) -> usize, to: fn(usize) -> usize) -> Move {
    Move { bits, count, from, to }
}

/// The scales of blocks: an f16 for each row, then the same of the minima.
const SCALE: Move = of(16, 1, |k, _| 16 * k, |_| 0);

/// The four coordinates of a column in its block of 32: column = i + 4 a + 8 n + 16 p.
#[inline]
const fn coordinates(w: usize) -> (usize, usize, usize, usize) {
    (w % 4, w / 4 % 2, w / 8 % 2, w / 16 % 2)
}

/// A nibble of four rows: 64 bytes for 32 columns.
const fn nibbles(byte: usize, k: usize, w: usize) -> usize {
    let (i, a, n, p) = coordinates(w);
    8 * (byte + 64 * (w / 32) + 4 * k + i + 16 * p + 32 * a) + 4 * n
}

/// Two bits of four rows: 32 bytes for 32 columns.
const fn pairs(byte: usize, k: usize, w: usize) -> usize {
    let (i, _, _, p) = coordinates(w);
    8 * (byte + 32 * (w / 32) + 4 * k + i + 16 * p) + 2 * (w / 4 % 4)
}

/// One bit of four rows: 16 bytes for 32 columns, a byte for eight columns, of which the order differs.
const fn upper(byte: usize, k: usize, w: usize, bit: usize) -> usize {
    8 * (byte + 16 * (w / 32) + 4 * k + w % 4) + bit
}

const fn bit_pan(w: usize) -> usize {
    let (_, a, n, p) = coordinates(w);
    p + 2 * a + 4 * n
}

const fn bit_nap(w: usize) -> usize {
    let (_, a, n, p) = coordinates(w);
    n + 2 * a + 4 * p
}

const fn bit_npa(w: usize) -> usize {
    let (_, a, n, p) = coordinates(w);
    n + 2 * p + 4 * a
}

/// A code of eight bits of eight rows.
const fn bytes8(byte: usize, k: usize, w: usize) -> usize {
    8 * (byte + 32 * (w / 4) + 4 * k + w % 4)
}

/// The number of the scale of sixteen `g` among those of four rows.
const fn sixteenth(k: usize, g: usize) -> usize {
    8 * (g / 2) + k + 4 * (g % 2)
}

/// Nibble `x` of 32 bytes, the lower ones first.
const fn low(byte: usize, x: usize) -> usize {
    8 * (byte + x % 32) + 4 * (x / 32)
}

/// Two bits `x` of 16 bytes, the lowest first.
const fn two(byte: usize, x: usize) -> usize {
    8 * (byte + x % 16) + 2 * (x / 16)
}

/// Two bits of weight `w`, as in Q2_K.
const fn to_pairs(byte: usize, w: usize) -> usize {
    8 * (byte + 32 * (w / 128) + w % 32) + 2 * (w / 32 % 4)
}

/// A nibble of weight `w` beside the one sixteen further.
const fn to_32(byte: usize, w: usize) -> usize {
    8 * (byte + 16 * (w / 32) + w % 16) + 4 * (w / 16 % 2)
}

/// A nibble of weight `w` beside the one 32 further.
const fn to_64(byte: usize, w: usize) -> usize {
    8 * (byte + 32 * (w / 64) + w % 32) + 4 * (w / 32 % 2)
}

/// The upper bit of weight `w`, as in Q5_K.
const fn to_upper(byte: usize, w: usize) -> usize {
    8 * (byte + w % 32) + w / 32
}

/// Nibble `g` of a row of nibbles.
const fn to_nibble(byte: usize, g: usize) -> usize {
    8 * byte + 4 * g
}

/// Lower four and upper two bits of the scales (`first` 4) or the minima (8) of Q4_K.
const fn to_k4_low(first: usize, g: usize) -> usize {
    if g < 4 { 8 * (first + g) } else { 8 * (12 + g - 4) + if first == 4 { 0 } else { 4 } }
}

const fn to_k4_high(first: usize, g: usize) -> usize {
    if g < 4 { 8 * (first + g) + 4 } else { 8 * (first + g - 4) + 6 }
}

/// The number of byte `m` of block `e / 4` of four rows.
const fn fourth(k: usize, e: usize) -> usize {
    16 * (e / 4) + 4 * k + e % 4
}

/// Where the signs and the scale of 32 weights go in IQ2_XXS and IQ3_XXS: bit 7 m of a word, and its upper four bits.
const fn to_word(first: usize, step: usize, e: usize, bit: usize) -> usize {
    8 * (first + step * (e / 4)) + bit
}

const fn interleaved(id: TypeId, base: TypeId, rows: usize, moves: &'static [Move]) -> Interleaved {
    Interleaved { id, base, rows, moves }
}

/// Signs of a group of eight in seven bits, of which each is the sum of itself and the next but for the first byte's
/// lowest, which belongs to the scale.
macro_rules! signs_beside_scale {
    ($to:expr) => {
        [
            of(1, 32, |k, e| 8 * (8 + fourth(k, e)), |e| ($to)(e, 28 + e % 4)),
            of(7, 32, |k, e| 8 * (8 + fourth(k, e)) + 1, |e| ($to)(e, 7 * (e % 4))),
            of(6, 32, |k, e| 8 * (8 + fourth(k, e)) + 1, |e| ($to)(e, 7 * (e % 4) + 1)),
        ]
    };
}

const SIGNS_2: [Move; 3] = signs_beside_scale!(|e, bit| to_word(6, 8, e, bit));
const SIGNS_3: [Move; 3] = signs_beside_scale!(|e, bit| to_word(66, 4, e, bit));

/// Scales and minima of Q4_K and Q5_K.
const K4: [Move; 6] = [
    SCALE,
    of(16, 1, |k, _| 16 * (4 + k), |_| 16),
    of(4, 8, |k, g| 8 * (32 + 4 * g + k), |g| to_k4_low(4, g)),
    of(4, 8, |k, g| 8 * (32 + 4 * g + k) + 4, |g| to_k4_low(8, g)),
    of(2, 8, |k, g| 8 * (16 + (4 * g + k) % 16) + 4 * ((4 * g + k) / 16), |g| to_k4_high(4, g)),
    of(2, 8, |k, g| 8 * (16 + (4 * g + k) % 16) + 4 * ((4 * g + k) / 16) + 2, |g| to_k4_high(8, g)),
];

/// The halves of the tables of the IQ_K types: bit ib of byte 8 + k + 4 p.
const HALVES: Move = of(1, 16, |k, g| 8 * (8 + k + 4 * (g % 2)) + g / 2, |g| 16 + g);
/// Scales of six bits of IQ4_K and IQ5_K.
const SIX_LOW: Move = of(4, 16, |k, g| low(32, sixteenth(k, g)), |g| to_nibble(8, g));
const SIX_HIGH: Move = of(2, 16, |k, g| two(16, sixteenth(k, g)), |g| 32 + 2 * g);

pub(super) static INTERLEAVED: &[Interleaved] = &[
    interleaved(TypeId::Q4_0_R8, TypeId::Q4_0, 8, &[SCALE, of(8, 16, |k, j| bytes8(16, k, j), |j| 8 * (2 + j))]),
    interleaved(
        TypeId::Q5_0_R4,
        TypeId::Q5_0,
        4,
        &[
            SCALE,
            of(1, 32, |k, w| upper(8, k, w, bit_pan(w)), |w| 16 + w),
            of(4, 32, |k, w| nibbles(24, k, w), |w| to_32(6, w)),
        ],
    ),
    interleaved(TypeId::Q8_0_R8, TypeId::Q8_0, 8, &[SCALE, of(8, 32, |k, j| bytes8(16, k, j), |j| 8 * (2 + j))]),
    interleaved(
        TypeId::Q2_K_R4,
        TypeId::Q2_K,
        4,
        &[
            of(16, 1, |k, _| 16 * k, |_| 8 * 80),
            of(16, 1, |k, _| 16 * (4 + k), |_| 8 * 82),
            of(8, 16, |k, g| 8 * (16 + sixteenth(k, g)), |g| 8 * g),
            of(2, 256, |k, w| pairs(80, k, w), |w| to_pairs(16, w)),
        ],
    ),
    interleaved(
        TypeId::Q3_K_R4,
        TypeId::Q3_K,
        4,
        &[
            of(16, 1, |k, _| 16 * k, |_| 8 * 108),
            of(4, 16, |k, g| low(24, sixteenth(k, g)), |g| 8 * (96 + g % 8) + 4 * (g / 8)),
            of(2, 16, |k, g| two(8, sixteenth(k, g)), |g| 8 * (104 + g % 4) + 2 * (g / 4)),
            of(1, 256, |k, w| upper(56, k, w, w % 32 / 4), |w| to_upper(0, w)),
            of(2, 256, |k, w| pairs(184, k, w), |w| to_pairs(32, w)),
        ],
    ),
    interleaved(
        TypeId::Q4_K_R4,
        TypeId::Q4_K,
        4,
        &[K4[0], K4[1], K4[2], K4[3], K4[4], K4[5], of(4, 256, |k, w| nibbles(64, k, w), |w| to_64(16, w))],
    ),
    interleaved(
        TypeId::Q5_K_R4,
        TypeId::Q5_K,
        4,
        &[
            K4[0],
            K4[1],
            K4[2],
            K4[3],
            K4[4],
            K4[5],
            of(1, 256, |k, w| upper(64, k, w, bit_nap(w)), |w| to_upper(16, w)),
            of(4, 256, |k, w| nibbles(192, k, w), |w| to_64(48, w)),
        ],
    ),
    interleaved(
        TypeId::Q6_K_R4,
        TypeId::Q6_K,
        4,
        &[
            of(16, 1, |k, _| 16 * k, |_| 8 * 208),
            of(8, 16, |k, g| 8 * (8 + sixteenth(k, g)), |g| 8 * (192 + g)),
            of(
                2,
                256,
                |k, w| pairs(72, k, w) - 2 * (w / 4 % 4) + 4 * (w / 4 % 2) + 2 * (w / 8 % 2),
                |w| to_pairs(128, w),
            ),
            of(4, 256, |k, w| nibbles(328, k, w), |w| 8 * (64 * (w / 128) + w % 64) + 4 * (w / 64 % 2)),
        ],
    ),
    interleaved(
        TypeId::IQ2_XXS_R4,
        TypeId::IQ2_XXS,
        4,
        &[
            SCALE,
            of(8, 32, |k, e| 8 * (136 + fourth(k, e)), |e| 8 * (2 + 8 * (e / 4) + e % 4)),
            SIGNS_2[0],
            SIGNS_2[1],
            SIGNS_2[2],
        ],
    ),
    interleaved(
        TypeId::IQ2_XS_R4,
        TypeId::IQ2_XS,
        4,
        &[
            SCALE,
            of(16, 32, |k, e| 64 + 16 * fourth(k, e), |e| 16 + 16 * e),
            of(6, 32, |k, e| 64 + 16 * fourth(k, e) + 9, |e| 16 + 16 * e + 10),
            of(8, 8, |k, g| 8 * (264 + 4 * g + k), |g| 8 * (66 + g)),
        ],
    ),
    interleaved(
        TypeId::IQ3_XXS_R4,
        TypeId::IQ3_XXS,
        4,
        &[
            SCALE,
            of(8, 64, |k, e| 8 * (136 + 32 * (e / 8) + 8 * k + e % 8), |e| 8 * (2 + e)),
            SIGNS_3[0],
            SIGNS_3[1],
            SIGNS_3[2],
        ],
    ),
    interleaved(
        TypeId::IQ1_S_R4,
        TypeId::IQ1_S_R1,
        4,
        &[of(8, 4, |k, m| 8 * (4 * m + k), |m| 8 * m), of(16, 1, |k, _| 8 * (16 + 2 * k), |_| 32)],
    ),
    interleaved(TypeId::IQ4_NL_R4, TypeId::IQ4_NL, 4, &[SCALE, of(4, 32, |k, w| nibbles(8, k, w), |w| to_32(2, w))]),
    interleaved(
        TypeId::IQ3_S_R4,
        TypeId::IQ3_S,
        4,
        &[
            SCALE,
            of(8, 64, |k, e| 8 * (8 + 32 * (e / 8) + 8 * (e % 4) + 4 * (e / 4 % 2) + k), |e| 8 * (2 + e)),
            of(8, 8, |k, g| 8 * (264 + 4 * g + k), |g| 8 * (66 + g)),
            of(1, 256, |k, w| 8 * (296 + 16 * (w / 32) + 4 * k + w % 4) + w % 32 / 4, |w| 8 * 74 + w),
            of(4, 8, |k, g| 8 * (424 + (4 * g + k) % 16) + 4 * ((4 * g + k) / 16), |g| to_nibble(106, g)),
        ],
    ),
    interleaved(
        TypeId::IQ2_S_R4,
        TypeId::IQ2_S,
        4,
        &[
            SCALE,
            of(8, 32, |k, e| 8 * (8 + fourth(k, e)), |e| 8 * (2 + e)),
            of(8, 32, |k, e| 8 * (168 + fourth(k, e)), |e| 8 * (34 + e)),
            of(8, 8, |k, g| 8 * (136 + 4 * g + k), |g| 8 * (66 + g)),
            of(8, 8, |k, g| 8 * (296 + 4 * g + k), |g| 8 * (74 + g)),
        ],
    ),
    interleaved(
        TypeId::IQ4_XS_R8,
        TypeId::IQ4_XS,
        8,
        &[
            SCALE,
            of(4, 8, |k, g| low(32, 8 * g + k), |g| to_nibble(4, g)),
            of(2, 8, |k, g| two(16, 8 * g + k), |g| 16 + 2 * g),
            of(
                4,
                256,
                |k, w| 8 * (64 + 128 * (w / 32) + 32 * (w % 32 / 8) + 4 * k + w % 4) + 4 * (w / 4 % 2),
                |w| to_32(8, w),
            ),
        ],
    ),
    interleaved(
        TypeId::IQ1_M_R4,
        TypeId::IQ1_M_R1,
        4,
        &[
            of(8, 4, |k, m| 8 * (4 * m + k), |m| 8 * m),
            of(8, 2, |k, m| 8 * (16 + 4 * m + k), |m| 8 * (4 + m)),
            of(8, 1, |k, _| 8 * (24 + k), |_| 48),
        ],
    ),
    interleaved(TypeId::BF16_R16, TypeId::BF16, 16, &[of(16, 2, |k, c| 16 * (2 * k + c), |c| 16 * c)]),
    interleaved(
        TypeId::Q6_0_R4,
        TypeId::Q6_0,
        4,
        &[
            SCALE,
            of(
                2,
                32,
                |k, w| 8 * (8 + 4 * k + w % 4 + 16 * (w / 16)) + 2 * (w / 4 % 2) + 4 * (w / 8 % 2),
                |w| 8 * (2 + w % 8) + 4 * (w / 8 % 2) + 2 * (w / 16),
            ),
            of(4, 32, |k, w| nibbles(40, k, w), |w| to_32(10, w)),
        ],
    ),
    interleaved(
        TypeId::IQ2_BN_R4,
        TypeId::IQ2_BN,
        4,
        &[of(2, 64, |k, w| 8 * (4 * k + w % 4 + 16 * (w / 16)) + 2 * (w / 4 % 4), |w| 8 * (w % 16) + 2 * (w / 16))],
    ),
    interleaved(
        TypeId::IQ2_K_R4,
        TypeId::IQ2_K,
        4,
        &[
            SCALE,
            HALVES,
            of(4, 16, |k, g| low(16, sixteenth(k, g)), |g| to_nibble(4, g)),
            of(2, 256, |k, w| pairs(48, k, w), |w| to_pairs(12, w)),
        ],
    ),
    interleaved(
        TypeId::IQ3_K_R4,
        TypeId::IQ3_K,
        4,
        &[
            SCALE,
            HALVES,
            of(1, 16, |k, g| 8 * (16 + sixteenth(k, g) % 8) + sixteenth(k, g) / 8, |g| 32 + g),
            of(4, 16, |k, g| low(24, sixteenth(k, g)), |g| to_nibble(6, g)),
            of(2, 256, |k, w| pairs(56, k, w), |w| to_pairs(14, w)),
            of(1, 256, |k, w| upper(312, k, w, w % 32 / 4), |w| to_upper(78, w)),
        ],
    ),
    interleaved(
        TypeId::IQ4_K_R4,
        TypeId::IQ4_K,
        4,
        &[SCALE, HALVES, SIX_LOW, SIX_HIGH, of(4, 256, |k, w| nibbles(64, k, w), |w| to_32(16, w))],
    ),
    interleaved(
        TypeId::IQ5_K_R4,
        TypeId::IQ5_K,
        4,
        &[
            SCALE,
            HALVES,
            SIX_LOW,
            SIX_HIGH,
            of(4, 256, |k, w| nibbles(64, k, w), |w| to_64(16, w)),
            of(1, 256, |k, w| upper(576, k, w, bit_npa(w)), |w| to_upper(144, w)),
        ],
    ),
    interleaved(
        TypeId::IQ4_KS_R4,
        TypeId::IQ4_KS,
        4,
        &[of(8, 8, |k, g| 8 * (4 * g + k), |g| 8 * g), of(4, 256, |k, w| nibbles(32, k, w), |w| to_32(8, w))],
    ),
    interleaved(
        TypeId::IQ5_KS_R4,
        TypeId::IQ5_KS,
        4,
        &[
            of(8, 8, |k, g| 8 * (4 * g + k), |g| 8 * g),
            of(4, 256, |k, w| nibbles(32, k, w), |w| to_64(8, w)),
            of(1, 256, |k, w| upper(544, k, w, bit_npa(w)), |w| to_upper(136, w)),
        ],
    ),
    interleaved(
        TypeId::MXFP4_R8,
        TypeId::MXFP4,
        8,
        &[of(8, 1, |k, _| 8 * k, |_| 0), of(8, 16, |k, j| bytes8(8, k, j), |j| 8 * (1 + j))],
    ),
    interleaved(TypeId::Q8_KV_R8, TypeId::Q8_KV, 8, &[of(8, 32, |k, j| bytes8(0, k, j), |j| 8 * j)]),
    interleaved(TypeId::Q8_K_R8, TypeId::Q8_K_R1, 8, &[SCALE, of(8, 256, |k, j| bytes8(16, k, j), |j| 8 * (2 + j))]),
];
