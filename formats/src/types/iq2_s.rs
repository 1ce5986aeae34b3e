//! IQ2_S: eight weights as one of 1024 points, a sign for each weight, and a 4-bit scale for each 16.
//!
//! ```text
//! byte   0        2          34            66        74          82
//!        | d: f16 | qs: 32 B | signs: 32 B | qh: 8 B | scales: 8 |
//! weights 8 l .. 8 l + 7: low 8 bits of the place in the codebook = qs[l],
//!                         high 2 bits = 2-bit field l % 4 of qh[l / 4], signs = the bits of signs[l] (1: negative)
//! scales[g]  : low nibble = s of weights 32 g .. 32 g + 15, high nibble = s of the 16 after them
//! x          = d * (0.5 + s) / 4 * magnitude * sign
//! ```

use std::sync::LazyLock;

use super::cells::{Book, Cell, Cells, GroupScales, Signs};
use super::codebook::{self, Again, BlockFit, Codebook, Kind, Points, Unpacked, grids};
use super::grid::whole_mut;
use super::integers::IntegerForm;
use super::k_block::BLOCK;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 82;
const SIZE: usize = 16;
const GROUPS: usize = BLOCK / SIZE;
const CODES: usize = 2;
const SIGNS: usize = CODES + BLOCK / 8;
const HIGH: usize = SIGNS + BLOCK / 8;
const SCALES: usize = HIGH + BLOCK / 32;
const _: () = assert!(SCALES + GROUPS / 2 == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = codebook::info::<Iq2S, 8, GROUPS, BYTES>(
    TypeId::IQ2_S,
    "iq2_s",
    &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Codes, Format::Bits, CODES),
        Field::new(Part::Signs, Format::Bits, SIGNS),
        Field::new(Part::HighBits, Format::Bits, HIGH),
        Field::new(Part::GroupScales, Format::Bits, SCALES),
    ],
);

/// The values of weights under scales that are decided.
pub(super) const CELLS: Cells = Cells {
    book: Book::Eights(&codebook::IQ2_S),
    signs: Signs::Free,
    scales: Some(GroupScales { cells: 2, nibble: |group| 2 * SCALES + group }),
    steps: codebook::steps::<Iq2S, 8, GROUPS, BYTES>,
    place,
};

fn place(cells: &[Cell], block: &mut [u8]) {
    let block: &mut [u8; BYTES] = whole_mut(block);
    block[HIGH..SCALES].fill(0);
    for (l, cell) in cells.iter().enumerate() {
        let point = cell.points[0];
        block[CODES + l] = point as u8;
        block[HIGH + l / 4] |= ((point >> 8) as u8) << (2 * (l % 4));
        block[SIGNS + l] = cell.signs;
    }
}

/// Points with signs.
pub(super) const INTEGERS: IntegerForm = codebook::integers::<Iq2S, 8, GROUPS, BYTES>(&codebook::IQ2_SIGNED);

/// The parts of the type's codec.
pub(super) struct Iq2S;

impl Points<8, GROUPS, BYTES> for Iq2S {
    const UNIT: f32 = 0.125;

    fn unpack(block: &[u8; BYTES]) -> Unpacked<GROUPS> {
        let mut unpacked = Unpacked::new();
        for l in 0..BLOCK / 8 {
            let high = usize::from(block[HIGH + l / 4]) >> (2 * (l % 4)) & 3;
            let place = usize::from(block[CODES + l]) | high << 8;
            unpacked.put(l, &codebook::IQ2_S[place], block[SIGNS + l]);
        }
        unpacked.scales = codebook::scale_nibbles(&block[SCALES..]);
        unpacked
    }

    fn kind() -> &'static Kind<8> {
        static KIND: LazyLock<Kind<8>> = LazyLock::new(|| Kind {
            definition: codebook::encode::<Iq2S, 8, GROUPS, BYTES>,
            book: Codebook::new(&grids::IQ2_S, 2, 1),
            top: 2,
            tries: 9,
            step: 0.1,
            even_signs: false,
            zero_below: 1e-8,
            sigma: 2.0,
            plain_weight: |x, sigma2| 0.25 * sigma2 + x * x,
            fitted_start: false,
            again: Again::Missed,
        });
        &KIND
    }

    /// Points and signs are written also where all scales are zero, as the reference does.
    fn write(fit: &BlockFit<GROUPS>, block: &mut [u8; BYTES]) {
        block.fill(0);
        for l in 0..BLOCK / 8 {
            let (g, k) = (l / 2, l % 2);
            let point = fit.points[g][k];
            block[CODES + l] = point as u8;
            block[HIGH + l / 4] |= ((point >> 8) as u8) << (2 * (l % 4));
            block[SIGNS + l] = fit.signs[g][k];
        }
        // The factor is ggml's: points are found with scales that are a little too large.
        let Some(inverse) = fit.write_scale(0.9875, block) else { return };
        fit.write_scale_nibbles(inverse, &mut block[SCALES..]);
    }
}
