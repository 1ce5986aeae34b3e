//! IQ3_XXS: four weights as one of 256 points, signs that are even in number of eight, and a 4-bit scale for each 32.
//!
//! ```text
//! byte   0        2          66                        98
//!        | d: f16 | qs: 64 B | signs and scales: 8 x u32 |
//! qs[l]  : place in the codebook of weights 4 l .. 4 l + 3
//! word g : bits 7 l .. 7 l + 6 = signs of weights 32 g + 8 l .. 32 g + 8 l + 6 (1: negative); bits 28 .. 31 = s
//! x      = d * (0.5 + s) / 2 * magnitude * sign        an eighth sign makes the number of negative ones even
//! ```

use std::sync::LazyLock;

use super::cells::{Book, Cell, Cells, GroupScales, Signs};
use super::codebook::{self, Again, BlockFit, Codebook, Kind, Points, Unpacked, grids, scale_code, with_even_sign};
use super::grid::whole_mut;
use super::integers::IntegerForm;
use super::k_block::BLOCK;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 98;
const SIZE: usize = 32;
const GROUPS: usize = BLOCK / SIZE;
const CODES: usize = 2;
const SIGNS: usize = CODES + BLOCK / 4;
const _: () = assert!(SIGNS + 4 * GROUPS == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = codebook::info::<Iq3Xxs, 4, GROUPS, BYTES>(
    TypeId::IQ3_XXS,
    "iq3_xxs",
    &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Codes, Format::Bits, CODES),
        Field::new(Part::Signs, Format::Bits, SIGNS),
    ],
);

/// The values of weights under scales that are decided.
pub(super) const CELLS: Cells = Cells {
    book: Book::Fours(&codebook::IQ3_XXS),
    signs: Signs::Even,
    scales: Some(GroupScales { cells: 4, nibble: |group| 2 * (SIGNS + 4 * group + 3) + 1 }),
    steps: codebook::steps::<Iq3Xxs, 4, GROUPS, BYTES>,
    place,
};

fn place(cells: &[Cell], block: &mut [u8]) {
    let block: &mut [u8; BYTES] = whole_mut(block);
    let (places, words) = block[CODES..].split_at_mut(SIGNS - CODES);
    for (places, cell) in places.as_chunks_mut::<2>().0.iter_mut().zip(cells) {
        *places = cell.points.map(|point| point as u8);
    }
    for (word, cells) in words.as_chunks_mut::<4>().0.iter_mut().zip(cells.as_chunks::<4>().0) {
        codebook::place_even_signs(cells, word);
    }
}

/// Points with signs.
pub(super) const INTEGERS: IntegerForm = codebook::integers::<Iq3Xxs, 4, GROUPS, BYTES>(&codebook::IQ3_XXS_SIGNED);

/// The parts of the type's codec.
pub(super) struct Iq3Xxs;

impl Points<4, GROUPS, BYTES> for Iq3Xxs {
    const UNIT: f32 = 0.25;

    fn unpack(block: &[u8; BYTES]) -> Unpacked<GROUPS> {
        let mut unpacked = Unpacked::new();
        let words = block[SIGNS..].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        for (g, word) in words.enumerate() {
            for l in 0..4 {
                let signs = with_even_sign((word >> (7 * l)) as u8);
                for (half, signs) in [signs, signs >> 4].into_iter().enumerate() {
                    let cell = 8 * g + 2 * l + half;
                    let point = &codebook::IQ3_XXS[usize::from(block[CODES + cell])];
                    unpacked.put(cell, point, signs);
                }
            }
            unpacked.scales[g] = (word >> 28) as u8;
        }
        unpacked
    }

    fn kind() -> &'static Kind<4> {
        static KIND: LazyLock<Kind<4>> = LazyLock::new(|| Kind {
            definition: codebook::encode::<Iq3Xxs, 4, GROUPS, BYTES>,
            book: Codebook::new(&grids::IQ3_XXS, 7, 2),
            top: 7,
            tries: 15,
            step: 0.2,
            even_signs: true,
            zero_below: 1e-8,
            sigma: 2.0,
            plain_weight: |x, _| x * x,
            fitted_start: false,
            again: Again::Missed,
        });
        &KIND
    }

    fn write(fit: &BlockFit<GROUPS>, block: &mut [u8; BYTES]) {
        block.fill(0);
        // The factor is ggml's: points are found with scales that are a little too small.
        let Some(inverse) = fit.write_scale(1.0125, block) else { return };
        for g in 0..GROUPS {
            for (code, point) in block[CODES + 8 * g..].iter_mut().zip(fit.points[g]) {
                *code = point as u8;
            }
            let mut word = u32::from(scale_code(inverse, fit.scales[g], 15)) << 28;
            for l in 0..4 {
                word |= u32::from(fit.signs[g][l]) << (7 * l);
            }
            block[SIGNS + 4 * g..][..4].copy_from_slice(&word.to_le_bytes());
        }
    }
}
