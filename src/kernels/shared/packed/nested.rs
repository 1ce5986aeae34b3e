//! Types whose blocks have one scale for several blocks of activations: Q2_0, PQ2_0, PTQ1_0, Q1_0, and IQ1_BN and
//! IQ2_BN of ik_llama.cpp, 32 rows interleaved.
//!
//! ```text
//! block:  32 scales (f16; IQ*_BN: f32)           row r at 2r (4r)
//!         for every 32 weights 1 or 2 lines      in a line, row r owns bytes 4r .. 4r + 4:
//!           two lines   bits 2k, 2k + 1 of byte i of line p: weight 16p + 4k + i
//!           one line    bit k of byte i: weight 4k + i
//! ```
//!
//! So that dword k of a row, which meets dword k of the activations, is its dword in a line, shifted and masked. The
//! file has four neighbours in a byte (eight where a weight is a bit). Nothing grows but PTQ1_0, from 1.75 bits to
//! 2.125: its digits of base 3 take more instructions than two bits take memory.
//!
//! The chain of a row is nested: the sums of the 32 weights, each times its activations' scale, are added up from zero,
//! and what comes out, times the block's scale, is added to the sum of the row. IQ1_BN and IQ2_BN have one scale for a
//! row, and add the sum of each 32 weights times both scales; the scale of the row is repeated for each block.

use trine_formats::types::{Part, TypeId, TypeInfo, ik, info, tq1_0};

use super::block32::{self, ByteCodes, LINE, ROWS};
use super::{Arranged, Encoding, Layout, Multiply};
use crate::Isa;
use crate::proof::Needs;
use crate::sizes::row_bytes;

/// Blocks of activations in a block of any type, at most.
pub(crate) const MOST_SUBS: usize = 4;

/// How a type's blocks are laid out.
pub(crate) trait Nested: ByteCodes {
    /// Description of the type.
    const INFO: TypeInfo;
    /// The types with such blocks, and the name of the layout.
    const TYPES: &'static [TypeId];
    const NAME: &'static str;
    /// Blocks of activations in a block.
    const SUBS: usize = {
        assert!(Self::INFO.block <= 32 * MOST_SUBS);
        Self::INFO.block / 32
    };
    /// Lines of 32 weights: of two bits or of one.
    const LINES: usize = 2;
    /// True if a row has one scale, before its blocks, and no chains within a block.
    const OF_ROWS: bool = Self::INFO.head > 0;
    /// Where the scale of a block of the file is.
    const SCALE_AT: usize = if Self::OF_ROWS { 0 } else { Self::INFO.at(Part::Scale) };
    /// Bytes of a scale.
    const SCALE_BYTES: usize = if Self::OF_ROWS { 4 } else { 2 };
    /// Bytes of a packed block, whose lines follow its scales.
    const LINES_START: usize = Self::SCALE_BYTES * ROWS;
    const PACKED: usize = Self::LINES_START + LINE * Self::LINES * Self::SUBS;

    /// A row's dwords in the lines of each 32 weights of a block of the file. Only as many as there are lines are used.
    fn dwords(block: &[u8]) -> [[u32; 2]; MOST_SUBS];
}

pub(crate) struct Q2_0;
pub(crate) struct Pq2_0;
pub(crate) struct Ptq1_0;
pub(crate) struct Q1_0;
pub(crate) struct Iq1Bn;
pub(crate) struct Iq2Bn;

macro_rules! two_bits {
    ($name:ident $ty:ident $($other:ident)?, $called:literal, $dwords:expr) => {
        impl ByteCodes for $name {
            const BIAS: i32 = 1;
            const MAX: u8 = 3;
        }

        impl Nested for $name {
            const INFO: TypeInfo = info::$ty;
            const TYPES: &'static [TypeId] = &[TypeId::$ty, $(TypeId::$other)?];
            const NAME: &'static str = $called;

            fn dwords(block: &[u8]) -> [[u32; 2]; MOST_SUBS] {
                $dwords(block)
            }
        }
    };
}

two_bits!(Q2_0 Q2_0, "q2_0 x32", of_two_bits);
two_bits!(Pq2_0 PQ2_0 Q2_0_G128, "pq2_0 x32", of_two_bits);
two_bits!(Ptq1_0 PTQ1_0, "ptq1_0 x32", |block: &[u8]| {
    of_two_bits(&tq1_0::to_pq2_0(&block.as_chunks().0[0]))
});

two_bits!(Iq1Bn IQ1_BN, "iq1_bn x32", |block| of_levels(const { ik::form(TypeId::IQ1_BN) }, block));
two_bits!(Iq2Bn IQ2_BN, "iq2_bn x32", |block| of_levels(const { ik::form(TypeId::IQ2_BN) }, block));

/// Codes 0 and 2, half of which is the bit.
impl ByteCodes for Q1_0 {
    const BIAS: i32 = 1;
    const MAX: u8 = 2;
}

impl Nested for Q1_0 {
    const INFO: TypeInfo = info::Q1_0;
    const TYPES: &'static [TypeId] = &[TypeId::Q1_0];
    const NAME: &'static str = "q1_0 x32";
    const LINES: usize = 1;

    fn dwords(block: &[u8]) -> [[u32; 2]; MOST_SUBS] {
        let (_, bits) = block.split_at(const { info::Q1_0.at(Part::Codes) });
        std::array::from_fn(|sub| {
            let bits = u32::from_le_bytes(bits.as_chunks().0[sub]);
            let byte = |i: u32| {
                // Each fourth bit, then side by side.
                let bits = bits >> i & 0x1111_1111;
                let bits = (bits | bits >> 3) & 0x0303_0303;
                let bits = (bits | bits >> 6) & 0x000F_000F;
                (bits | bits >> 12) as u8
            };
            [u32::from_le_bytes([0, 1, 2, 3].map(byte)), 0]
        })
    }
}

/// Dwords of blocks like those of PQ2_0, of any length.
fn of_two_bits(block: &[u8]) -> [[u32; 2]; MOST_SUBS] {
    let (_, codes) = block.split_at(const { info::PQ2_0.at(Part::Codes) });
    let mut dwords = [[0; 2]; MOST_SUBS];
    for (to, codes) in dwords.as_flattened_mut().iter_mut().zip(codes.as_chunks().0) {
        // Field i of byte k and field k of byte i change places: first in squares of two by two, then the squares.
        let x = u32::from_le_bytes(*codes);
        let other = (x ^ x >> 6) & 0x00CC_00CC;
        let x = x ^ other ^ other << 6;
        let other = (x ^ x >> 12) & 0x0000_F0F0;
        *to = x ^ other ^ other << 12;
    }
    dwords
}
const _: () = assert!(info::Q2_0.at(Part::Codes) == info::PQ2_0.at(Part::Codes));

/// Dwords of levels from -1 on.
fn of_levels(form: &ik::BlockFormat, block: &[u8]) -> [[u32; 2]; MOST_SUBS] {
    let mut levels = [0; 256];
    (form.levels)(block, &mut levels);
    let mut dwords = [[0; 2]; MOST_SUBS];
    let sixteens = levels[..form.block].as_chunks::<16>().0;
    for (to, levels) in dwords.as_flattened_mut().iter_mut().zip(sixteens) {
        for (w, level) in levels.iter().enumerate() {
            *to |= u32::from((*level + 1).cast_unsigned()) << (8 * (w % 4) + 2 * (w / 4));
        }
    }
    dwords
}

/// `$layout` of every type.
macro_rules! layouts_of_nested {
    ($layout:ident $(, $products:ty)?) => {{
        use $crate::shared::packed::nested::{Iq1Bn, Iq2Bn, Pq2_0, Ptq1_0, Q1_0, Q2_0};
        $crate::shared::packed::layouts_of!($layout $(, $products)?: Q2_0 Pq2_0 Ptq1_0 Q1_0 Iq1Bn Iq2Bn)
    }};
}
pub(crate) use layouts_of_nested;

/// The layout of a type.
pub(crate) const fn layout<C: Nested>(needs: Needs, multiply: Multiply) -> Layout {
    Layout {
        types: C::TYPES,
        needs,
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_0),
        group_bytes: |n| n / C::INFO.block * C::PACKED,
        pack: pack::<C>,
        acts: Arranged::Q8_0 { bias: C::BIAS },
        act_bytes: block32::act_bytes,
        arrange: |_, act, n, out| block32::arrange_for::<C>(act, n, out, 2),
        multiply,
        tile: 32,
    }
}

/// Up to [`ROWS`] rows of the file.
fn pack<C: Nested>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = row_bytes(&C::INFO, n);
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= ROWS, "weights");
    if rows == 0 {
        return true;
    }
    for (b, out) in out.chunks_exact_mut(C::PACKED).enumerate() {
        for row in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let (head, blocks) = w[row.min(rows - 1) * row_bytes..][..row_bytes].split_at(C::INFO.head);
            let block = &blocks[b * C::INFO.bytes..][..C::INFO.bytes];
            let scale = &mut out[C::SCALE_BYTES * row..][..C::SCALE_BYTES];
            match ik::scale_of_row(head) {
                Some(of_row) => scale.copy_from_slice(&of_row.to_le_bytes()),
                None => scale.copy_from_slice(&block[C::SCALE_AT..][..2]),
            }
            let lines = out[C::LINES_START..].chunks_exact_mut(LINE);
            let dwords = C::dwords(block);
            let dwords = dwords.iter().flat_map(|dwords| &dwords[..C::LINES]);
            for (line, dword) in lines.zip(dwords) {
                line[4 * row..][..4].copy_from_slice(&dword.to_le_bytes());
            }
        }
    }
    true
}
