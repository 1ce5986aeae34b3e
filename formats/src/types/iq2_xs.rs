//! IQ2_XS: eight weights as one of 512 points, signs that are even in number, and a 4-bit scale for each 16.
//!
//! ```text
//! byte   0        2                  66          74
//!        | d: f16 | qs: 32 x u16     | scales: 8 |
//! qs[l]      : bits 0 .. 8 = place in the codebook of weights 8 l .. 8 l + 7,
//!              bits 9 .. 15 = their signs but the last (1: negative)
//! scales[g]  : low nibble = s of weights 32 g .. 32 g + 15, high nibble = s of the 16 after them
//! x          = d * (0.5 + s) / 4 * magnitude * sign     an eighth sign makes the number of negative ones even
//! ```

use std::sync::LazyLock;

use super::cells::{Book, Cell, Cells, GroupScales, Signs};
use super::codebook::{self, Again, BlockFit, Codebook, Kind, Points, Unpacked, grids, with_even_sign};
use super::grid::whole_mut;
use super::integers::IntegerForm;
use super::k_block::BLOCK;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 74;
const SIZE: usize = 16;
const GROUPS: usize = BLOCK / SIZE;
const CODES: usize = 2;
const SCALES: usize = CODES + 2 * (BLOCK / 8);
const _: () = assert!(SCALES + GROUPS / 2 == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = codebook::info::<Iq2Xs, 8, GROUPS, BYTES>(
    TypeId::IQ2_XS,
    "iq2_xs",
    &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Codes, Format::Bits, CODES),
        Field::new(Part::GroupScales, Format::Bits, SCALES),
    ],
);

/// The values of weights under scales that are decided.
pub(super) const CELLS: Cells = Cells {
    book: Book::Eights(&codebook::IQ2_XS),
    signs: Signs::Even,
    scales: Some(GroupScales { cells: 2, nibble: |group| 2 * SCALES + group }),
    steps: codebook::steps::<Iq2Xs, 8, GROUPS, BYTES>,
    place,
};

fn place(cells: &[Cell], block: &mut [u8]) {
    let block: &mut [u8; BYTES] = whole_mut(block);
    for (code, cell) in block[CODES..SCALES].as_chunks_mut::<2>().0.iter_mut().zip(cells) {
        *code = (cell.points[0] | u16::from(cell.signs & 0x7F) << 9).to_le_bytes();
    }
}

/// Points with signs.
pub(super) const INTEGERS: IntegerForm = codebook::integers::<Iq2Xs, 8, GROUPS, BYTES>(&codebook::IQ2_SIGNED);

/// The parts of the type's codec.
pub(super) struct Iq2Xs;

impl Points<8, GROUPS, BYTES> for Iq2Xs {
    const UNIT: f32 = 0.125;

    fn unpack(block: &[u8; BYTES]) -> Unpacked<GROUPS> {
        let mut unpacked = Unpacked::new();
        for (l, code) in block[CODES..SCALES].as_chunks::<2>().0.iter().enumerate() {
            let code = u16::from_le_bytes(*code);
            let point = &codebook::IQ2_XS[usize::from(code & 511)];
            unpacked.put(l, point, with_even_sign((code >> 9) as u8));
        }
        unpacked.scales = codebook::scale_nibbles(&block[SCALES..]);
        unpacked
    }

    fn kind() -> &'static Kind<8> {
        static KIND: LazyLock<Kind<8>> = LazyLock::new(|| Kind {
            definition: codebook::encode::<Iq2Xs, 8, GROUPS, BYTES>,
            book: Codebook::new(&grids::IQ2_XS, 2, 2),
            top: 2,
            tries: 9,
            step: 0.1,
            even_signs: true,
            zero_below: 1e-15,
            sigma: 1.0,
            // ggml does not encode without importance; here all columns matter as much then.
            plain_weight: |x, sigma2| (sigma2 + x * x).sqrt(),
            fitted_start: false,
            again: Again::Missed,
        });
        &KIND
    }

    fn write(fit: &BlockFit<GROUPS>, block: &mut [u8; BYTES]) {
        block.fill(0);
        let Some(inverse) = fit.write_scale(1.0, block) else { return };
        for (l, code) in block[CODES..SCALES].as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let (g, k) = (l / 2, l % 2);
            *code = (fit.points[g][k] | u16::from(fit.signs[g][k]) << 9).to_le_bytes();
        }
        fit.write_scale_nibbles(inverse, &mut block[SCALES..]);
    }
}
