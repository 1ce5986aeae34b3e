//! IQ2_XXS: eight weights as one of 256 points, signs that are even in number, and a 4-bit scale for each 32.
//!
//! ```text
//! byte   0        2                                   66
//!        | d: f16 | 8 groups of 32 weights, 8 B each  |
//! group  : 4 B places in the codebook, weights 8 l .. 8 l + 7 at byte l; then 32 bits:
//!          bits 7 l .. 7 l + 6 = signs of the same weights but the last (1: negative); bits 28 .. 31 = s
//! x      = d * (0.5 + s) / 4 * magnitude * sign        an eighth sign makes the number of negative ones even
//! ```

use std::sync::LazyLock;

use super::cells::{Book, Cell, Cells, GroupScales, Signs};
use super::codebook::{self, Again, BlockFit, Codebook, Kind, Points, Unpacked, grids, scale_code, with_even_sign};
use super::grid::whole_mut;
use super::integers::IntegerForm;
use super::k_block::BLOCK;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 66;
const SIZE: usize = 32;
const GROUPS: usize = BLOCK / SIZE;
const CODES: usize = 2;
const _: () = assert!(CODES + GROUPS * 8 == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = codebook::info::<Iq2Xxs, 8, GROUPS, BYTES>(
    TypeId::IQ2_XXS,
    "iq2_xxs",
    &[Field::new(Part::Scale, Format::F16, 0), Field::new(Part::Codes, Format::Bits, CODES)],
);

/// The values of weights under scales that are decided.
pub(super) const CELLS: Cells = Cells {
    book: Book::Eights(&codebook::IQ2_XXS),
    signs: Signs::Even,
    scales: Some(GroupScales { cells: 4, nibble: |group| 2 * (CODES + 8 * group + 7) + 1 }),
    steps: codebook::steps::<Iq2Xxs, 8, GROUPS, BYTES>,
    place,
};

fn place(cells: &[Cell], block: &mut [u8]) {
    let block: &mut [u8; BYTES] = whole_mut(block);
    for (group, cells) in block[CODES..].as_chunks_mut::<8>().0.iter_mut().zip(cells.as_chunks::<4>().0) {
        let (places, word) = group.split_at_mut(4);
        for (place, cell) in places.iter_mut().zip(cells) {
            *place = cell.points[0] as u8;
        }
        codebook::place_even_signs(cells, whole_mut(word));
    }
}

/// Points with signs.
pub(super) const INTEGERS: IntegerForm = codebook::integers::<Iq2Xxs, 8, GROUPS, BYTES>(&codebook::IQ2_SIGNED);

/// The parts of the type's codec.
pub(super) struct Iq2Xxs;

impl Points<8, GROUPS, BYTES> for Iq2Xxs {
    const UNIT: f32 = 0.125;

    fn unpack(block: &[u8; BYTES]) -> Unpacked<GROUPS> {
        let mut unpacked = Unpacked::new();
        for (g, group) in block[CODES..].as_chunks::<8>().0.iter().enumerate() {
            let [places, rest] =
                [0, 4].map(|at| u32::from_le_bytes([group[at], group[at + 1], group[at + 2], group[at + 3]]));
            for (l, place) in places.to_le_bytes().into_iter().enumerate() {
                let signs = with_even_sign((rest >> (7 * l)) as u8);
                unpacked.put(4 * g + l, &codebook::IQ2_XXS[usize::from(place)], signs);
            }
            unpacked.scales[g] = (rest >> 28) as u8;
        }
        unpacked
    }

    fn kind() -> &'static Kind<8> {
        static KIND: LazyLock<Kind<8>> = LazyLock::new(|| Kind {
            definition: codebook::encode::<Iq2Xxs, 8, GROUPS, BYTES>,
            book: Codebook::new(&grids::IQ2_XXS, 2, 2),
            top: 2,
            tries: 6,
            step: 0.1,
            even_signs: true,
            zero_below: 1e-15,
            sigma: 1.0,
            // ggml does not encode without importance; here all columns matter as much then.
            plain_weight: |x, sigma2| (sigma2 + x * x).sqrt(),
            fitted_start: true,
            again: Again::All,
        });
        &KIND
    }

    fn write(fit: &BlockFit<GROUPS>, block: &mut [u8; BYTES]) {
        block.fill(0);
        let Some(inverse) = fit.write_scale(1.0, block) else { return };
        for (g, group) in block[CODES..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let (places, words) = group.split_at_mut(4);
            for (place, point) in places.iter_mut().zip(fit.points[g]) {
                *place = point as u8;
            }
            let mut rest = u32::from(scale_code(inverse, fit.scales[g], 15)) << 28;
            for (l, signs) in fit.signs[g].iter().enumerate() {
                rest |= u32::from(*signs) << (7 * l);
            }
            words.copy_from_slice(&rest.to_le_bytes());
        }
    }
}
