//! The IQ2 and IQ3 types and IQ4_XS with 16 rows interleaved: each weight by itself, as its place among the levels.
//!
//! A file has these weights eight or four at a time, as the place of a point in a codebook with signs beside it, and to
//! take points apart costs more than to multiply them. The weights of a type have only six or sixteen values, its
//! levels, which fit three or four bits. The bytes of a group are more than those of the file (3.3 to 4.6 bits a weight
//! where it has 2.1 to 4.3), yet memory hands them over sooner than points are looked up.
//!
//! Block of a group:
//!
//! ```text
//! byte   0                32                      32 + 64 q
//!        | d: f16 per row | q lines of scales     | 8 units of codes
//! scales: line k, row r = dword r: scales 4k .. 4k + 3 of row r, signed bytes
//!         q = 4 where each 16 weights have a scale, 2 where each 32 have one
//! ```
//!
//! Unit j is about weights 32j .. 32j + 32. Dword k of row r is weights 4k .. 4k + 4 of them, a byte for each.
//!
//! ```text
//! 16 levels: line i = 0..4   dword i | dword 4 + i << 4
//! 6 levels:  line i = 0..3   dword i | dword 3 + i << 3 | two << 6
//!            two: bits 5..4, 3..2, 1..0 of what is left, dword 6 << 3 | dword 7
//! ```

use std::arch::x86_64::*;

use trine_formats::types::{Part, TypeId, codebook, info};

use super::super::act::I32x8;
use super::super::grouped::GroupCodes;
use super::super::points;
use crate::Isa;
use crate::proof::{Avx2, Needs, Proof};
use crate::shared::packed::k_quants::{BLOCK, ROWS, count_rows};
use crate::shared::packed::{Arrange, Arranged, Encoding, Layout, Multiply};

/// Where the scales begin.
pub(super) const SCALES: usize = 2 * ROWS;
/// Units of a block.
pub(super) const UNITS: usize = 8;

/// A type whose weights are levels.
pub(super) trait Levels: GroupCodes {
    const TYPES: &'static [TypeId];
    const NAME: &'static str;
    /// Where a block of the file has its d, an f16.
    const FILE_D: usize;
    /// The values of weights, ascending, and how many they are.
    const VALUES: ([i8; 16], usize);
    /// True if each 16 weights have a scale, and not each 32.
    const OF_16: bool;

    /// Lines of scales, and of a unit.
    const SCALE_LINES: usize = if Self::OF_16 { 4 } else { 2 };
    const UNIT_LINES: usize = if Self::VALUES.1 > 8 { 4 } else { 3 };
    /// Where the codes begin.
    const CODES: usize = SCALES + 64 * Self::SCALE_LINES;
    /// Bytes of a block of a group.
    const BYTES_OF_GROUP: usize = Self::CODES + 64 * Self::UNIT_LINES * UNITS;
    /// The place of a level, by the weight's byte.
    const PLACES: [u8; 256] = places(Self::VALUES);
}

/// The codes of weights; bytes that are no level have none, and are not looked up.
const fn places((values, count): ([i8; 16], usize)) -> [u8; 256] {
    let mut places = [0; 256];
    let mut i = 0;
    while i < count {
        places[values[i].cast_unsigned() as usize] = i as u8;
        i += 1;
    }
    places
}

/// The magnitudes of a codebook's coordinates with both signs, ascending.
const fn levels<const N: usize, const POINTS: usize>(book: &[[i8; N]; POINTS]) -> ([i8; 16], usize) {
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
    let (mut values, mut count) = ([0; 16], 0);
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
            const FILE_D: usize = info::$ty.at(Part::Scale);
            const VALUES: ([i8; 16], usize) = $values;
            const OF_16: bool = $size == 16;
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
        Some(levels) => (*levels, 16),
        None => panic!("the codes of IQ4_XS stand in a table"),
    };
}

/// The layout of a type: what activations become, and a product that runs best with up to `tile` tokens.
pub(super) const fn layout<C: Levels>(
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
        pack: pack::<C>,
        acts: Arranged::Q8K(TypeId::IQ2_XXS),
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
    n / BLOCK * C::BYTES_OF_GROUP
}

/// Up to [`ROWS`] rows of the file.
fn pack<C: Levels>(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let _avx2 = Avx2::of(isa);
    let row_bytes = n / BLOCK * C::BYTES;
    let rows = count_rows(w, row_bytes);
    if rows == 0 {
        return true;
    }
    for (b, out) in out.chunks_exact_mut(C::BYTES_OF_GROUP).enumerate() {
        for r in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let block = &w[r.min(rows - 1) * row_bytes + b * C::BYTES..][..C::BYTES];
            // SAFETY: `_avx2` proves these instructions.
            unsafe { pack_block::<C>(block, r, out) };
        }
    }
    true
}

/// One block of the file to its places as row `r`.
#[target_feature(enable = "avx2,fma,f16c")]
fn pack_block<C: Levels>(block: &[u8], r: usize, out: &mut [u8]) {
    out[2 * r..][..2].copy_from_slice(&block[C::FILE_D..][..2]);
    let mut scales = [0u8; 16];
    // SAFETY: this function has the features that the trait asks for; 16 bytes.
    unsafe { _mm_storeu_si128(scales.as_mut_ptr().cast(), C::scales(block)) };
    for k in 0..C::SCALE_LINES {
        // A scale of 32 weights is there twice.
        let four: [u8; 4] = std::array::from_fn(|i| match C::OF_16 {
            true => scales[4 * k + i],
            false => scales[8 * k + 2 * i],
        });
        out[SCALES + 64 * k + 4 * r..][..4].copy_from_slice(&four);
    }
    for j in 0..UNITS {
        // SAFETY: this function has the features that the trait asks for.
        let weights = I32x8::new(unsafe { C::weights(block, j) }).0;
        let code = |byte: u8| C::PLACES[usize::from(byte)];
        let dwords = weights.map(|dword| u32::from_le_bytes(dword.to_le_bytes().map(code)));
        for i in 0..C::UNIT_LINES {
            let line = match C::UNIT_LINES {
                4 => dwords[i] | dwords[4 + i] << 4,
                _ => {
                    let left = dwords[6] << 3 | dwords[7];
                    let two = left >> (4 - 2 * i) & 0x0303_0303;
                    dwords[i] | dwords[3 + i] << 3 | two << 6
                }
            };
            let to = C::CODES + 64 * (C::UNIT_LINES * j + i) + 4 * r;
            out[to..][..4].copy_from_slice(&line.to_le_bytes());
        }
    }
}
