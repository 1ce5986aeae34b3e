//! The IQ2 and IQ3 types, IQ4_XS and those of ik_llama.cpp with 16 rows interleaved: each weight by itself, as its
//! place among the levels.
//!
//! A file has these weights eight or four at a time, as the place of a point in a codebook with signs beside it, and to
//! take points apart costs more than to multiply them. The weights of a type have only six or sixteen values, its
//! levels, which fit three or four bits. Those of ik_llama.cpp are tables of 4 to 32 levels (`super::ik_levels`). The
//! bytes of a group are more than those of the file (3.3 to 4.6 bits a weight where it has 2.1 to 4.3), yet memory hands
//! them over sooner than points are looked up.
//!
//! Group:
//!
//! ```text
//! byte   0                                            64, or 0 where each block has a d
//!        | d: f32 per row, where rows have one scale  | block | block | ..
//!
//! block  | d: f16 per row, where blocks have one      | q lines of scales     | 8 units of codes
//! scales: line k, row r = dword r: scales 4k .. 4k + 3 of row r, signed bytes
//!         q = 4 where each 16 weights have a scale, 2 where each 32 have one
//! ```
//!
//! Unit j is about weights 32j .. 32j + 32. Dword k of row r is weights 4k .. 4k + 4 of them, a byte for each.
//!
//! AVX2 multiplies pairs of products, words, with scales. There the dwords of units 2m and 2m + 1 are two weights of one
//! group and two of another, so that a dword with the scales of both is what they meet: of 64 weights the first unit has
//! the first and third sixteen, the second the others. Scales of 32 weights are in the order 0, 2, 1, 3 in a line, which
//! makes bytes 0 and 2 those of one unit, like those of 16. Types with a float step for each unit are not mixed.
//!
//! ```text
//! 4 levels:  line i = 0..2   dword i | dword 2 + i << 2 | dword 4 + i << 4 | dword 6 + i << 6
//! 8 levels:  line i = 0..3   dword i | dword 3 + i << 3 | two << 6
//!            two: bits 5..4, 3..2, 1..0 of what is left, dword 6 << 3 | dword 7
//! 16 levels: line i = 0..4   dword i | dword 4 + i << 4
//! 32 levels: the same of the low four bits; then bit k of line 4 is the fifth bit of dword k
//! more:      line i = 0..8   dword i, levels instead of places, for AVX-512 raised by 128
//! ```
//!
//! Types of ik_llama.cpp raise all levels of some groups by the same. What that adds to a row is taken from the sums of
//! the activations, and the byte of the scale says which groups they are: twice the scale, or, where scales are odd,
//! one less, and 1 for a raised group.

use std::arch::x86_64::*;

use trine_formats::types::{Part, TypeId, codebook, ik, info};

use super::super::grouped::{GroupCodes, GroupStep};
use super::super::points;
use crate::Isa;
use crate::proof::{Avx2, Needs, Proof};
use crate::shared::packed::k_quants::{BLOCK, ROWS, count_rows};
use crate::shared::packed::{Arrange, Arranged, Encoding, Layout, Multiply};

/// Units of a block.
pub(super) const UNITS: usize = 8;

/// A type whose weights are levels.
pub(super) trait Levels {
    const TYPES: &'static [TypeId];
    const NAME: &'static str;
    /// Bytes of a block of the file.
    const BYTES: usize;
    /// Bytes before the blocks of a row of the file, which begin with its scale, an f16 or f32.
    const HEAD: usize = 0;
    /// Where a block of the file has its d, an f16, if rows have none.
    const FILE_D: usize = 0;
    const STEP: GroupStep;
    /// Last factor of the sum of a row.
    const LAST: f32;
    /// The values of weights, ascending, and how many they are; none where these are more than 32.
    const VALUES: ([i8; 32], usize);
    /// True if each 16 weights have a scale, and not each 32.
    const OF_16: bool;
    /// By how much the levels of some groups are raised; 0 where there are no such groups.
    const RAISED: i16 = 0;
    /// True if all scales are odd.
    const ODD: bool = false;
    /// True if a dword of AVX2's units has weights of two groups.
    const MIXED: bool = !matches!(Self::STEP, GroupStep::Each);
    /// The type whose name the arrangement of activations has: its kernels exist for the same instruction sets.
    const ACTS_OF: TypeId = if Self::MIXED { TypeId::IQ2_XXS } else { TypeId::IQ4_XS };

    /// Bytes before the blocks of a group.
    const GROUP_HEAD: usize = if Self::HEAD > 0 { 4 * ROWS } else { 0 };
    /// Where the scales of a block begin.
    const SCALES: usize = if Self::HEAD > 0 { 0 } else { 2 * ROWS };
    /// Lines of scales, and of a unit.
    const SCALE_LINES: usize = if Self::OF_16 { 4 } else { 2 };
    const UNIT_LINES: usize = match Self::VALUES.1 {
        1..=4 => 2,
        5..=8 => 3,
        9..=16 => 4,
        17..=32 => 5,
        _ => 8,
    };
    /// Offset of the codes in a block of a group, bytes.
    const CODES: usize = Self::SCALES + 64 * Self::SCALE_LINES;
    /// Bytes of a block of a group.
    const BYTES_OF_GROUP: usize = Self::CODES + 64 * Self::UNIT_LINES * UNITS;
    /// The place of a level, by the weight's byte.
    const PLACES: [u8; 256] = places(Self::VALUES, Self::RAISED);

    /// A block of the file.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    unsafe fn read(block: &[u8]) -> Weights;
}

/// The weights of a block of the file.
pub(super) struct Weights {
    pub levels: [i8; BLOCK],
    /// The scale of each 16 weights.
    pub scales: [i8; 16],
}

/// Bit of the places of raised levels.
const OF_RAISED: u8 = 0x80;

/// The codes of weights; bytes that are no level have none, and are not looked up. Where levels are more than 32, bytes
/// are their own codes.
const fn places((values, count): ([i8; 32], usize), raised: i16) -> [u8; 256] {
    let mut places = [0; 256];
    let mut i = 0;
    while i < 256 && count == 0 {
        places[i] = i as u8;
        i += 1;
    }
    i = 0;
    while i < count {
        places[values[i].cast_unsigned() as usize] = i as u8;
        i += 1;
    }
    i = 0;
    while i < count && raised != 0 {
        let level = values[i] as i16 + raised;
        let mut other = 0;
        while other < count {
            assert!(values[other] as i16 != level, "a level tells whether it is raised");
            other += 1;
        }
        places[(level as i8).cast_unsigned() as usize] = OF_RAISED | i as u8;
        i += 1;
    }
    places
}

/// The magnitudes of a codebook's coordinates with both signs, ascending.
const fn levels<const N: usize, const POINTS: usize>(book: &[[i8; N]; POINTS]) -> ([i8; 32], usize) {
    let mut seen = [false; 128];
    let mut p = 0;
    while p < POINTS {
        let mut i = 0;
        while i < N {
            seen[book[p][i] as usize] = true;
            i += 1;
        }
        p += 1;
    }
    let (mut values, mut count) = ([0; 32], 0);
    let mut step = 0;
    while step < 2 * seen.len() {
        let level = step as i32 - seen.len() as i32;
        let magnitude = level.unsigned_abs() as usize;
        if level != 0 && magnitude < seen.len() && seen[magnitude] {
            values[count] = level as i8;
            count += 1;
        }
        step += 1;
    }
    (values, count)
}

/// `$layout` of every type.
macro_rules! layouts_of_levels {
    ($layout:ident) => {{
        use $crate::arch::x86_64::points::{Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Iq4Xs};
        $crate::shared::packed::layouts_of!($layout: Iq2Xxs Iq2Xs Iq2S Iq3Xxs Iq3S Iq4Xs)
    }};
}
pub(super) use layouts_of_levels;

macro_rules! types {
    ($($codes:ident: $ty:ident, $name:literal, each $size:literal, $values:expr;)*) => {$(
        impl Levels for points::$codes {
            const TYPES: &'static [TypeId] = &[TypeId::$ty];
            const NAME: &'static str = $name;
            const BYTES: usize = <Self as GroupCodes>::BYTES;
            const FILE_D: usize = info::$ty.at(Part::Scale);
            const STEP: GroupStep = <Self as GroupCodes>::STEP;
            const LAST: f32 = <Self as GroupCodes>::LAST;
            const VALUES: ([i8; 32], usize) = $values;
            const OF_16: bool = $size == 16;

            unsafe fn read(block: &[u8]) -> Weights {
                // SAFETY: the caller's promise.
                unsafe { read_points::<Self>(block) }
            }
        }
    )*};
}

types! {
    Iq2Xxs: IQ2_XXS, "iq2_xxs x16", each 32, levels(&codebook::IQ2_XXS);
    Iq2Xs: IQ2_XS, "iq2_xs x16", each 16, levels(&codebook::IQ2_XS);
    Iq2S: IQ2_S, "iq2_s x16", each 16, levels(&codebook::IQ2_S);
    Iq3Xxs: IQ3_XXS, "iq3_xxs x16", each 32, levels(&codebook::IQ3_XXS);
    Iq3S: IQ3_S, "iq3_s x16", each 32, levels(&codebook::IQ3_S);
    Iq4Xs: IQ4_XS, "iq4_xs x16", each 32, match info::IQ4_XS.codebook {
        Some(levels) => ascending(levels),
        None => panic!("the codes of IQ4_XS stand in a table"),
    };
}

/// Levels of a table, and how many there are.
pub(super) const fn ascending(table: &[i8]) -> ([i8; 32], usize) {
    let mut values = [0; 32];
    let mut i = 0;
    while i < table.len() {
        values[i] = table[i];
        i += 1;
    }
    (values, table.len())
}

#[target_feature(enable = "avx2,fma,f16c")]
fn read_points<C: GroupCodes>(block: &[u8]) -> Weights {
    let mut weights = Weights { levels: [0; BLOCK], scales: [0; 16] };
    // SAFETY: this function has the features that the trait asks for; 16 bytes.
    unsafe { _mm_storeu_si128(weights.scales.as_mut_ptr().cast(), C::scales(block)) };
    for (j, levels) in weights.levels.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        // SAFETY: this function has the features that the trait asks for; 32 bytes.
        unsafe { _mm256_storeu_si256(levels.as_mut_ptr().cast(), C::weights(block, j)) };
    }
    weights
}

/// Where the weights of a unit of AVX2 are in a block: unit j, dword k, byte i.
pub(super) const fn mixed(j: usize, k: usize, i: usize) -> usize {
    64 * (j / 2) + 16 * (j % 2) + 32 * (i / 2) + 2 * k + i % 2
}

/// How products by AVX-512 want levels that stand as bytes: raised by this.
pub(super) const RAISED: u8 = 128;

/// The layout of a type: what activations become, and a product that runs best with up to `tile` tokens. `WHOLE`: the
/// four products of a dword are added up before they meet a scale, by AVX-512.
pub(super) const fn layout<C: Levels, const WHOLE: bool>(
    needs: Needs,
    (act_bytes, arrange): (fn(usize) -> usize, Arrange),
    multiply: Multiply,
    tile: usize,
) -> Layout {
    Layout {
        types: C::TYPES,
        needs,
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: group_bytes::<C>,
        pack: pack::<C, WHOLE>,
        acts: Arranged::Q8K(C::ACTS_OF),
        act_bytes,
        arrange,
        multiply,
        tile,
    }
}

/// Bytes of arranged activations of `act` bytes for a block. An odd number of cache lines: rows of a tile then do not
/// fall on the same few sets of the cache.
pub(super) fn act_bytes(n: usize, act: usize) -> usize {
    64 * ((n / BLOCK * (act / 64)) | 1)
}

/// Bytes of a group of rows of `n` weights.
fn group_bytes<C: Levels>(n: usize) -> usize {
    C::GROUP_HEAD + n / BLOCK * C::BYTES_OF_GROUP
}

/// Up to [`ROWS`] rows of the file.
fn pack<C: Levels, const WHOLE: bool>(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let _avx2 = Avx2::of(isa);
    let row_bytes = C::HEAD + n / BLOCK * C::BYTES;
    let rows = count_rows(w, row_bytes);
    if rows == 0 {
        return true;
    }
    let (scales, blocks) = out.split_at_mut(C::GROUP_HEAD);
    for r in 0..ROWS {
        // Rows that are not there repeat the last; nobody looks at their outputs.
        let (head, row) = w[r.min(rows - 1) * row_bytes..][..row_bytes].split_at(C::HEAD);
        if let Some(d) = ik::scale_of_row(head) {
            scales[4 * r..][..4].copy_from_slice(&d.to_le_bytes());
        }
        for (block, out) in row.chunks_exact(C::BYTES).zip(blocks.chunks_exact_mut(C::BYTES_OF_GROUP)) {
            // SAFETY: `_avx2` proves these instructions.
            let weights = unsafe { C::read(block) };
            if C::HEAD == 0 {
                out[2 * r..][..2].copy_from_slice(&block[C::FILE_D..][..2]);
            }
            pack_block::<C, WHOLE>(&weights, r, out);
        }
    }
    true
}

/// The scales and codes of one block of the file to their places as row `r`.
fn pack_block<C: Levels, const WHOLE: bool>(weights: &Weights, r: usize, out: &mut [u8]) {
    let raise = if WHOLE && C::UNIT_LINES == 8 { RAISED } else { 0 };
    let codes = weights.levels.map(|level| C::PLACES[usize::from(level.cast_unsigned())].wrapping_add(raise));
    let scale = |g: usize| {
        let raised = (codes[16 * g] & OF_RAISED).cast_signed() >> 7 & 1;
        let scale = weights.scales[g];
        let byte = match (C::RAISED, C::ODD) {
            (0, _) => scale,
            (_, true) => scale & !1 | raised,
            (_, false) => scale << 1 | raised,
        };
        byte.cast_unsigned()
    };
    for k in 0..C::SCALE_LINES {
        // A scale of 32 weights is there twice.
        let four = [0, 1, 2, 3].map(|i| match (C::OF_16, C::MIXED && !WHOLE) {
            (true, _) => scale(4 * k + i),
            (false, false) => scale(8 * k + 2 * i),
            (false, true) => scale(8 * k + [0, 4, 2, 6][i]),
        });
        out[C::SCALES + 64 * k + 4 * r..][..4].copy_from_slice(&four);
    }
    // Bytes are their own codes; the others lose what stands for a raised group.
    let mask = if C::UNIT_LINES == 8 { u32::MAX } else { 0x1F1F_1F1F };
    for j in 0..UNITS {
        let dwords: [u32; 8] = std::array::from_fn(|k| {
            let bytes = [0, 1, 2, 3].map(|i| match C::MIXED && !WHOLE {
                true => codes[mixed(j, k, i)],
                false => codes[32 * j + 4 * k + i],
            });
            u32::from_le_bytes(bytes) & mask
        });
        for i in 0..C::UNIT_LINES {
            let line = line::<C>(&dwords, i);
            let to = C::CODES + 64 * (C::UNIT_LINES * j + i) + 4 * r;
            out[to..][..4].copy_from_slice(&line.to_le_bytes());
        }
    }
}

/// A row's dword in line `i` of a unit.
fn line<C: Levels>(dwords: &[u32; 8], i: usize) -> u32 {
    match C::UNIT_LINES {
        2 => (0..4).fold(0, |line, k| line | dwords[2 * k + i] << (2 * k)),
        3 => {
            let left = dwords[6] << 3 | dwords[7];
            let two = left >> (4 - 2 * i) & 0x0303_0303;
            dwords[i] | dwords[3 + i] << 3 | two << 6
        }
        4 => dwords[i] | dwords[4 + i] << 4,
        5 if i == 4 => (0..8).fold(0, |line, k| line | (dwords[k] >> 4 & 0x0101_0101) << k),
        5 => dwords[i] & 0x0F0F_0F0F | (dwords[4 + i] & 0x0F0F_0F0F) << 4,
        _ => dwords[i],
    }
}
