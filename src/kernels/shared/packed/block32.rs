//! Types with 32-element blocks and one float chain per row, R rows interleaved: the file's bytes
//! in another order.
//!
//! ```text
//! block:  R scales (f16; MXFP4: one byte,    row r at 2r (r, 4r)
//!         Q8_KV: f32, that of the row again)
//!         R offsets (f16)                    Q4_1, Q5_1
//!         4R bytes of fifth bits             Q5_0, Q5_1: of element 4g + i of row r
//!           R 32  8 masks of 4R bits: bit 4r + i of mask g
//!           R 16  4R bytes: bit g of byte 4r + i
//!         8 or 4 lines of 4R bytes           in line g, row r owns bytes 4r .. 4r + 4:
//!           Q8_0    elements 4g + i; but for ARM: plus 128
//!           others  low nibble element 4g + i, high nibble element 16 + 4g + i
//! ```
//!
//! A register holds the same four elements of as many rows as it has dwords; they meet a dword of a token. On x86 R is
//! 32: all parts of a block but the scales of MXFP4 are whole lines of the cache, so that no load straddles two, and
//! two vectors of rows share every broadcast of activations. On ARM and in WebAssembly, whose vectors are short, R is 16.

use trine_formats::types::TypeId;
use trine_formats::types::num::f16_to_f32;
use trine_formats::types::{Part, TypeInfo, ik, info};

use super::{Arranged, Encoding, Layout, Multiply, dword};
use crate::Isa;
use crate::proof::Needs;
use crate::sizes::row_bytes;

/// True if products take codes with a sign, as ARM's do; the others take them without.
const SIGNED: bool = cfg!(target_arch = "aarch64");
/// Difference of codes of eight bits and their values.
const BIAS_OF_BYTES: i32 = if SIGNED { 0 } else { 128 };

/// Rows of a group.
pub(crate) const ROWS: usize = if cfg!(any(target_arch = "aarch64", target_arch = "wasm32")) { 16 } else { 32 };
/// Bytes of a line of codes, and of all fifth bits of a block.
pub(crate) const LINE: usize = 4 * ROWS;

/// The block step: what is added to the row's sum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackedStep {
    /// `(isum * dw) * dx`
    SumFirst,
    /// `(dw * dx) * isum`
    ScaleFirst,
    /// `(dw * dx) * isum + mw * sx`
    PlusOffset,
}

/// The codes of a type, as products meet them.
pub(crate) trait ByteCodes {
    /// Difference of a code and its value.
    const BIAS: i32;
    /// The largest code, where codes have no sign.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "bounds of products without a sign"))]
    const MAX: u8;
}

/// How a type's blocks are laid out.
pub(crate) trait Block32: ByteCodes {
    /// Description of the type.
    const INFO: TypeInfo;
    /// Name of the layout.
    const NAME: &'static str;
    /// Bytes of a block of one row in the file.
    const BYTES: usize = Self::INFO.bytes;
    /// Where its scale, offset, fifth bits and codes are; a type whose rows have one scale has none in a block.
    const SCALE_AT: usize = if Self::INFO.head == 0 { Self::INFO.at(Part::Scale) } else { 0 };
    const OFFSET_AT: usize = match Self::STEP {
        PackedStep::PlusOffset => Self::INFO.at(Part::Min),
        _ => 0,
    };
    const FIFTH_AT: Option<usize> = None;
    const CODES_AT: usize = Self::INFO.at(Part::Codes);
    /// Bytes of a scale; one byte is a power of two, four are the scale of a row.
    const SCALE_BYTES: usize = if Self::INFO.head == 0 { 2 } else { 4 };
    /// Whole bytes or nibbles.
    const LINES: usize = 4;
    /// Values of the nibbles plus the bias; in order where there is no table.
    const TABLE: Option<[u8; 16]> = None;
    const STEP: PackedStep;

    const OFFSETS: usize = if matches!(Self::STEP, PackedStep::PlusOffset) { 2 * ROWS } else { 0 };
    /// Bytes before the masks and before the lines of a packed block.
    const MASKS_START: usize = Self::SCALE_BYTES * ROWS + Self::OFFSETS;
    const LINES_START: usize = Self::MASKS_START + if Self::FIFTH_AT.is_some() { LINE } else { 0 };
    const PACKED: usize = Self::LINES_START + LINE * Self::LINES;
    /// Activation type.
    const ACT: TypeId = if matches!(Self::STEP, PackedStep::PlusOffset) { TypeId::Q8_1 } else { TypeId::Q8_0 };
}

/// A type's name with the rows of a group.
macro_rules! named {
    ($name:literal) => {
        if ROWS == 16 { concat!($name, " x16") } else { concat!($name, " x32") }
    };
}

pub(crate) struct Q8_0;
pub(crate) struct Q8Kv;
pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;
pub(crate) struct Q5_1;
pub(crate) struct Iq4Nl;
pub(crate) struct Mxfp4;

impl ByteCodes for Q8_0 {
    const BIAS: i32 = BIAS_OF_BYTES;
    const MAX: u8 = 255;
}

impl Block32 for Q8_0 {
    const INFO: TypeInfo = info::Q8_0;
    const NAME: &'static str = named!("q8_0");
    const LINES: usize = 8;
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

impl ByteCodes for Q8Kv {
    const BIAS: i32 = BIAS_OF_BYTES;
    const MAX: u8 = 255;
}

/// Q8_0 but for its scale, of ik_llama.cpp.
impl Block32 for Q8Kv {
    const INFO: TypeInfo = info::Q8_KV;
    const NAME: &'static str = named!("q8_kv");
    const LINES: usize = 8;
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

impl ByteCodes for Q4_0 {
    const BIAS: i32 = 8;
    const MAX: u8 = 15;
}

impl Block32 for Q4_0 {
    const INFO: TypeInfo = info::Q4_0;
    const NAME: &'static str = named!("q4_0");
    const STEP: PackedStep = PackedStep::SumFirst;
}

impl ByteCodes for Q4_1 {
    const BIAS: i32 = 0;
    const MAX: u8 = 15;
}

impl Block32 for Q4_1 {
    const INFO: TypeInfo = info::Q4_1;
    const NAME: &'static str = named!("q4_1");
    const STEP: PackedStep = PackedStep::PlusOffset;
}

impl ByteCodes for Q5_0 {
    const BIAS: i32 = 16;
    const MAX: u8 = 31;
}

impl Block32 for Q5_0 {
    const INFO: TypeInfo = info::Q5_0;
    const NAME: &'static str = named!("q5_0");
    const FIFTH_AT: Option<usize> = Some(info::Q5_0.at(Part::HighBits));
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

impl ByteCodes for Q5_1 {
    const BIAS: i32 = 0;
    const MAX: u8 = 31;
}

impl Block32 for Q5_1 {
    const INFO: TypeInfo = info::Q5_1;
    const NAME: &'static str = named!("q5_1");
    const FIFTH_AT: Option<usize> = Some(info::Q5_1.at(Part::HighBits));
    const STEP: PackedStep = PackedStep::PlusOffset;
}

impl ByteCodes for Iq4Nl {
    const BIAS: i32 = BIAS_OF_BYTES;
    const MAX: u8 = 255;
}

impl Block32 for Iq4Nl {
    const INFO: TypeInfo = info::IQ4_NL;
    const NAME: &'static str = named!("iq4_nl");
    const TABLE: Option<[u8; 16]> = Some(signed_or_not(Self::INFO.raised_codebook(128)));
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

impl ByteCodes for Mxfp4 {
    const BIAS: i32 = 12;
    const MAX: u8 = 24;
}

/// Twice the E2M1 values; the scale is halved instead.
impl Block32 for Mxfp4 {
    const INFO: TypeInfo = info::MXFP4;
    const NAME: &'static str = named!("mxfp4");
    const SCALE_BYTES: usize = 1;
    const TABLE: Option<[u8; 16]> = Some(Self::INFO.raised_codebook(12));
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

/// A table of 256-level codes without a sign, or with one.
const fn signed_or_not(mut table: [u8; 16]) -> [u8; 16] {
    let mut i = 0;
    while i < 16 {
        table[i] = table[i].wrapping_sub((128 - BIAS_OF_BYTES) as u8);
        i += 1;
    }
    table
}

/// `$layout` of every type.
#[allow(unused_macros, reason = "not every system has kernels for packed rows")]
macro_rules! layouts_of_block32 {
    ($layout:ident $(, $products:ty)?) => {{
        use $crate::shared::packed::block32::{Iq4Nl, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8Kv};
        $crate::shared::packed::layouts_of!($layout $(, $products)?: Q8_0 Q8Kv Q4_0 Q4_1 Q5_0 Q5_1 Iq4Nl Mxfp4)
    }};
}
#[allow(unused_imports, reason = "not every system has kernels for packed rows")]
pub(crate) use layouts_of_block32;

/// The layout of a type.
pub(crate) const fn layout<B: Block32>(needs: Needs, multiply: Multiply) -> Layout {
    Layout {
        types: const { &[B::INFO.id] },
        needs,
        name: B::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(B::ACT),
        group_bytes: group_bytes::<B>,
        pack: pack::<B>,
        acts: match B::STEP {
            PackedStep::PlusOffset => Arranged::Q8_1,
            _ => Arranged::Q8_0 { bias: B::BIAS },
        },
        act_bytes,
        arrange: arrange::<B>,
        multiply,
        tile: 32,
    }
}

/// Bytes of a group of rows of `n` weights.
fn group_bytes<B: Block32>(n: usize) -> usize {
    n / 32 * B::PACKED
}

/// Bytes of an arranged row.
pub(crate) fn act_bytes(n: usize) -> usize {
    (n / 32 * RECORD).next_multiple_of(64)
}

/// Up to [`ROWS`] rows of the file.
pub(crate) fn pack<B: Block32>(_: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = row_bytes(&B::INFO, n);
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= ROWS, "weights");
    if rows == 0 {
        return true;
    }
    for (b, out) in out.chunks_exact_mut(B::PACKED).enumerate() {
        let mut masks = [0u128; 8];
        for row in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let (head, from) = w[row.min(rows - 1) * row_bytes..][..row_bytes].split_at(B::INFO.head);
            let from = &from[b * B::BYTES..][..B::BYTES];
            let scale = &mut out[row * B::SCALE_BYTES..][..B::SCALE_BYTES];
            match ik::scale_of_row(head) {
                Some(of_row) => scale.copy_from_slice(&of_row.to_le_bytes()),
                None => scale.copy_from_slice(&from[B::SCALE_AT..][..B::SCALE_BYTES]),
            }
            if B::OFFSETS > 0 {
                let to = B::SCALE_BYTES * ROWS + 2 * row;
                out[to..to + 2].copy_from_slice(&from[B::OFFSET_AT..][..2]);
            }
            if let Some(at) = B::FIFTH_AT {
                let fifth = dword(&from[at..], 0);
                for (g, mask) in masks.iter_mut().enumerate() {
                    let four = fifth[g / 2] >> (4 * (g % 2)) & 15;
                    *mask |= u128::from(four) << (4 * row);
                }
            }
            for g in 0..B::LINES {
                let to = B::LINES_START + LINE * g + 4 * row;
                let mut codes = dword(&from[B::CODES_AT..], g);
                if B::LINES == 8 {
                    codes = codes.map(|c| c.wrapping_add(B::BIAS as u8));
                }
                out[to..to + 4].copy_from_slice(&codes);
            }
        }
        if B::FIFTH_AT.is_some() {
            let to = &mut out[B::MASKS_START..][..LINE];
            if ROWS == 16 {
                for (bit, to) in to.iter_mut().enumerate() {
                    *to = (0..8).fold(0, |byte, g| byte | ((masks[g] >> bit & 1) as u8) << g);
                }
            } else {
                for (to, mask) in to.chunks_exact_mut(LINE / 8).zip(masks) {
                    to.copy_from_slice(&mask.to_le_bytes()[..LINE / 8]);
                }
            }
        }
    }
    true
}

/// An arranged block of a token: 32 int8, scale f32, start of the accumulator i32 (minus the bias times the sum
/// of the int8), sum term f32 of Q8_1, 4 bytes of nothing.
pub(crate) const RECORD: usize = 48;

fn arrange<B: Block32>(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    let q_at = if B::ACT == TypeId::Q8_1 { 4 } else { 2 };
    arrange_for::<B>(act, n, out, q_at);
}

/// Arranges a row of blocks whose int8 begin at byte `q_at`, for such codes.
pub(crate) fn arrange_for<C: ByteCodes>(act: &[u8], n: usize, out: &mut [u8], q_at: usize) {
    let bytes = q_at + 32;
    assert_eq!(act.len(), n / 32 * bytes, "activation row");
    for (from, to) in act.chunks_exact(bytes).zip(out.chunks_exact_mut(RECORD)) {
        let half = |at: usize| f16_to_f32(u16::from_le_bytes([from[at], from[at + 1]]));
        to[..32].copy_from_slice(&from[q_at..]);
        let sum: i32 = from[q_at..].iter().map(|&q| i32::from(q as i8)).sum();
        to[32..36].copy_from_slice(&half(0).to_le_bytes());
        to[36..40].copy_from_slice(&(-C::BIAS * sum).to_le_bytes());
        let offset = if q_at == 4 { half(2) } else { 0.0 };
        to[40..44].copy_from_slice(&offset.to_le_bytes());
    }
}
