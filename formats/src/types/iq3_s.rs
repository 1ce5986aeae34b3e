//! IQ3_S: four weights as one of 512 points, a sign for each weight, and a 4-bit scale for each 32.
//!
//! ```text
//! byte   0        2          66        74            106         110
//!        | d: f16 | qs: 64 B | qh: 8 B | signs: 32 B | scales: 4 |
//! weights 4 l .. 4 l + 3: low 8 bits of the place in the codebook = qs[l], ninth bit = bit l % 8 of qh[l / 8]
//! signs[l]  : the signs of weights 8 l .. 8 l + 7 (1: negative)
//! scales[k] : low nibble = s of weights 64 k .. 64 k + 31, high nibble = s of the 32 after them
//! x         = d * (1 + 2 s) * magnitude * sign
//! ```

use std::sync::LazyLock;

use super::cells::{Book, Cell, Cells, GroupScales, Signs};
use super::codebook::{self, Again, BlockFit, Codebook, Kind, Points, Unpacked, grids};
use super::grid::whole_mut;
use super::integers::IntegerForm;
use super::k_block::BLOCK;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 110;
const SIZE: usize = 32;
const GROUPS: usize = BLOCK / SIZE;
const CODES: usize = 2;
const HIGH: usize = CODES + BLOCK / 4;
const SIGNS: usize = HIGH + BLOCK / 32;
const SCALES: usize = SIGNS + BLOCK / 8;
const _: () = assert!(SCALES + GROUPS / 2 == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = codebook::info::<Iq3S, 4, GROUPS, BYTES>(
    TypeId::IQ3_S,
    "iq3_s",
    &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Codes, Format::Bits, CODES),
        Field::new(Part::HighBits, Format::Bits, HIGH),
        Field::new(Part::Signs, Format::Bits, SIGNS),
        Field::new(Part::GroupScales, Format::Bits, SCALES),
    ],
);

/// The values of weights under scales that are decided.
pub(super) const CELLS: Cells = Cells {
    book: Book::Fours(&codebook::IQ3_S),
    signs: Signs::Free,
    scales: Some(GroupScales { cells: 4, nibble: |group| 2 * SCALES + group }),
    steps: codebook::steps::<Iq3S, 4, GROUPS, BYTES>,
    place,
};

fn place(cells: &[Cell], block: &mut [u8]) {
    let block: &mut [u8; BYTES] = whole_mut(block);
    block[HIGH..SIGNS].fill(0);
    for (l, cell) in cells.iter().enumerate() {
        for (half, point) in cell.points.into_iter().enumerate() {
            let place = 2 * l + half;
            block[CODES + place] = point as u8;
            block[HIGH + place / 8] |= ((point >> 8) as u8) << (place % 8);
        }
        block[SIGNS + l] = cell.signs;
    }
}

/// Points with signs.
pub(super) const INTEGERS: IntegerForm = codebook::integers::<Iq3S, 4, GROUPS, BYTES>(&codebook::IQ3_S_SIGNED);

/// The parts of the type's codec.
pub(super) struct Iq3S;

impl Points<4, GROUPS, BYTES> for Iq3S {
    const UNIT: f32 = 1.0;

    fn unpack(block: &[u8; BYTES]) -> Unpacked<GROUPS> {
        let mut unpacked = Unpacked::new();
        for l in 0..BLOCK / 4 {
            let high = usize::from(block[HIGH + l / 8]) >> (l % 8) & 1;
            let place = usize::from(block[CODES + l]) | high << 8;
            let signs = block[SIGNS + l / 2] >> (4 * (l % 2));
            unpacked.put(l, &codebook::IQ3_S[place], signs);
        }
        unpacked.scales = codebook::scale_nibbles(&block[SCALES..]);
        unpacked
    }

    fn kind() -> &'static Kind<4> {
        static KIND: LazyLock<Kind<4>> = LazyLock::new(|| Kind {
            definition: codebook::encode::<Iq3S, 4, GROUPS, BYTES>,
            book: Codebook::new(&grids::IQ3_S, 7, 3),
            top: 7,
            tries: 9,
            step: 0.2,
            even_signs: false,
            zero_below: 0.0,
            sigma: 2.0,
            plain_weight: |x, _| x * x,
            fitted_start: false,
            again: Again::AllUnlessHit,
        });
        &KIND
    }

    /// Points and signs are written also where all scales are zero, as the reference does.
    ///
    /// It does one thing more: places in the codebook (but for their ninth bits) and signs of a group after one of
    /// zeros take the room of the zeros, so that a block with zeros before other weights decodes to something else.
    /// Files are the same only with that.
    fn write(fit: &BlockFit<GROUPS>, block: &mut [u8; BYTES]) {
        block.fill(0);
        let searched = (0..GROUPS).filter(|&g| !fit.zero[g]);
        for (room, g) in searched.enumerate() {
            for (k, point) in fit.points[g].iter().enumerate() {
                block[CODES + 8 * room + k] = *point as u8;
                block[HIGH + g] |= ((point >> 8) as u8) << k;
            }
            block[SIGNS + 4 * room..][..4].copy_from_slice(&fit.signs[g]);
        }
        // The factor is ggml's: points are found with scales that are a little too small.
        let Some(inverse) = fit.write_scale(1.033, block) else { return };
        fit.write_scale_nibbles(inverse, &mut block[SCALES..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of ggml: see `write`.
    #[test]
    fn weights_after_zeros_take_their_room() {
        let mut x = [0.0; BLOCK];
        x[146] = 5.335173;
        let mut block = [0xA5; BYTES];
        INFO.encode.unwrap()(&x, None, &mut block);
        let mut expected = [0; BYTES];
        expected[1] = 0x23;
        (expected[CODES + 4], expected[SCALES + 2]) = (0x5F, 0x0F);
        assert_eq!(block, expected);
    }
}
