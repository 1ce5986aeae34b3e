//! Types with 32-element blocks and one float chain per row, 16 rows interleaved: the file's bytes
//! in another order.
//!
//! ```text
//! block:  16 scales (f16; MXFP4: one byte)   row r at 2r (r)
//!         16 offsets (f16)                   Q4_1, Q5_1
//!         8 masks of 64 bits                 Q5_0, Q5_1: bit 4r + i of mask g = fifth bit of element 4g + i
//!         8 or 4 lines of 64 bytes           in line g, row r owns bytes 4r .. 4r + 4:
//!           Q8_0    elements 4g + i, plus 128
//!           others  low nibble element 4g + i, high nibble element 16 + 4g + i
//! ```
//!
//! Lane = row: eight dot products with the broadcast dwords of a token give the block's 16 integer sums,
//! and every lane goes through the float chain of its row. A block's lines are unpacked once and used for
//! all tokens, whose sums stay in the first-level cache.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::num::f16_to_f32;
use trine_formats::types::{Part, TypeInfo, info};

use super::{check, prefetch};
use crate::packed::{Encoding, Layout};

/// Rows of a group.
pub(super) const ROWS: usize = 16;

/// The block step: what is added to the row's sum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PackedStep {
    /// `(isum * dw) * dx`
    SumFirst,
    /// `(dw * dx) * isum`
    ScaleFirst,
    /// `(dw * dx) * isum + mw * sx`
    PlusOffset,
}

/// How a type's blocks are laid out.
pub(super) trait Block32 {
    /// What is known of the type.
    const INFO: TypeInfo;
    /// Bytes of a block of one row in the file.
    const BYTES: usize = Self::INFO.bytes;
    /// Where its scale, offset, fifth bits and codes are.
    const SCALE_AT: usize = Self::INFO.at(Part::Scale);
    const OFFSET_AT: usize = match Self::STEP {
        PackedStep::PlusOffset => Self::INFO.at(Part::Min),
        _ => 0,
    };
    const FIFTH_AT: Option<usize> = None;
    const CODES_AT: usize = Self::INFO.at(Part::Codes);
    /// Bytes of a scale; one byte is a power of two.
    const SCALE_BYTES: usize = 2;
    /// Whole bytes or nibbles.
    const LINES: usize = 4;
    /// What an unsigned code exceeds its value by.
    const BIAS: i32;
    /// The largest unsigned code.
    const MAX: u8;
    /// Values of the nibbles plus the bias; in order where there is no table.
    const TABLE: Option<[u8; 16]> = None;
    const STEP: PackedStep;

    const OFFSETS: usize = if matches!(Self::STEP, PackedStep::PlusOffset) {
        2 * ROWS
    } else {
        0
    };
    /// Bytes before the masks and before the lines of a packed block.
    const MASKS_START: usize = Self::SCALE_BYTES * ROWS + Self::OFFSETS;
    const LINES_START: usize = Self::MASKS_START + if Self::FIFTH_AT.is_some() { 64 } else { 0 };
    const PACKED: usize = Self::LINES_START + 64 * Self::LINES;
    /// Activation type.
    const ACT: TypeId = if matches!(Self::STEP, PackedStep::PlusOffset) {
        TypeId::Q8_1
    } else {
        TypeId::Q8_0
    };
}

pub(super) struct Q8_0;
pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q5_0;
pub(super) struct Q5_1;
pub(super) struct Iq4Nl;
pub(super) struct Mxfp4;

impl Block32 for Q8_0 {
    const INFO: TypeInfo = info::Q8_0;
    const LINES: usize = 8;
    const BIAS: i32 = 128;
    const MAX: u8 = 255;
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

impl Block32 for Q4_0 {
    const INFO: TypeInfo = info::Q4_0;
    const BIAS: i32 = 8;
    const MAX: u8 = 15;
    const STEP: PackedStep = PackedStep::SumFirst;
}

impl Block32 for Q4_1 {
    const INFO: TypeInfo = info::Q4_1;
    const BIAS: i32 = 0;
    const MAX: u8 = 15;
    const STEP: PackedStep = PackedStep::PlusOffset;
}

impl Block32 for Q5_0 {
    const INFO: TypeInfo = info::Q5_0;
    const FIFTH_AT: Option<usize> = Some(info::Q5_0.at(Part::HighBits));
    const BIAS: i32 = 16;
    const MAX: u8 = 31;
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

impl Block32 for Q5_1 {
    const INFO: TypeInfo = info::Q5_1;
    const FIFTH_AT: Option<usize> = Some(info::Q5_1.at(Part::HighBits));
    const BIAS: i32 = 0;
    const MAX: u8 = 31;
    const STEP: PackedStep = PackedStep::PlusOffset;
}

impl Block32 for Iq4Nl {
    const INFO: TypeInfo = info::IQ4_NL;
    const BIAS: i32 = 128;
    const MAX: u8 = 255;
    const TABLE: Option<[u8; 16]> = Some(Self::INFO.raised_codebook(128));
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

/// Twice the E2M1 values; the scale is halved instead.
impl Block32 for Mxfp4 {
    const INFO: TypeInfo = info::MXFP4;
    const SCALE_BYTES: usize = 1;
    const BIAS: i32 = 12;
    const MAX: u8 = 24;
    const TABLE: Option<[u8; 16]> = Some(Self::INFO.raised_codebook(12));
    const STEP: PackedStep = PackedStep::ScaleFirst;
}

pub(super) const fn layout<B: Block32>(name: &'static str, acts: &'static str) -> Layout {
    Layout {
        name,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(B::ACT),
        group_bytes: |n| n / 32 * B::PACKED,
        pack: pack::<B>,
        acts,
        act_bytes: |n| (n / 32 * RECORD).next_multiple_of(64),
        arrange: arrange::<B>,
        multiply: multiply::<B>,
        tile: 32,
        expansion: None,
    }
}

pub(super) static Q8_0_X16: Layout = layout::<Q8_0>("q8_0 x16", "q8_0 bias 128");
pub(super) static Q4_0_X16: Layout = layout::<Q4_0>("q4_0 x16", "q8_0 bias 8");
pub(super) static Q4_1_X16: Layout = layout::<Q4_1>("q4_1 x16", "q8_1");
pub(super) static Q5_0_X16: Layout = layout::<Q5_0>("q5_0 x16", "q8_0 bias 16");
pub(super) static Q5_1_X16: Layout = layout::<Q5_1>("q5_1 x16", "q8_1");
pub(super) static IQ4_NL_X16: Layout = layout::<Iq4Nl>("iq4_nl x16", "q8_0 bias 128");
pub(super) static MXFP4_X16: Layout = layout::<Mxfp4>("mxfp4 x16", "q8_0 bias 12");

fn pack<B: Block32>(w: &[u8], n: usize, out: &mut [u8]) -> bool {
    let row_bytes = n / 32 * B::BYTES;
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= ROWS, "weights");
    if rows == 0 {
        return true;
    }
    for (b, out) in out.chunks_exact_mut(B::PACKED).enumerate() {
        let mut masks = [0u64; 8];
        for row in 0..ROWS {
            // Rows that are not there repeat the last; nobody looks at their outputs.
            let from = &w[row.min(rows - 1) * row_bytes + b * B::BYTES..][..B::BYTES];
            let scale = &from[B::SCALE_AT..][..B::SCALE_BYTES];
            out[row * B::SCALE_BYTES..][..B::SCALE_BYTES].copy_from_slice(scale);
            if B::OFFSETS > 0 {
                let to = B::SCALE_BYTES * ROWS + 2 * row;
                out[to..to + 2].copy_from_slice(&from[B::OFFSET_AT..][..2]);
            }
            if let Some(at) = B::FIFTH_AT {
                let fifth = super::dword(&from[at..], 0);
                for (g, mask) in masks.iter_mut().enumerate() {
                    let four = fifth[g / 2] >> (4 * (g % 2)) & 15;
                    *mask |= u64::from(four) << (4 * row);
                }
            }
            for g in 0..B::LINES {
                let to = B::LINES_START + 64 * g + 4 * row;
                let mut codes = super::dword(&from[B::CODES_AT..], g);
                if B::LINES == 8 {
                    codes = codes.map(|c| c ^ 0x80);
                }
                out[to..to + 4].copy_from_slice(&codes);
            }
        }
        if B::FIFTH_AT.is_some() {
            let to = out[B::MASKS_START..].chunks_exact_mut(8);
            to.zip(masks)
                .for_each(|(to, mask)| to.copy_from_slice(&mask.to_le_bytes()));
        }
    }
    true
}

/// An arranged block of a token: 32 int8, scale f32, start of the accumulator i32 (minus the bias times the sum
/// of the int8), sum term f32 of Q8_1, 4 bytes of nothing.
pub(super) const RECORD: usize = 48;

fn arrange<B: Block32>(act: &[u8], n: usize, out: &mut [u8]) {
    let q_at = if B::ACT == TypeId::Q8_1 { 4 } else { 2 };
    let bytes = q_at + 32;
    assert_eq!(act.len(), n / 32 * bytes, "activation row");
    for (from, to) in act.chunks_exact(bytes).zip(out.chunks_exact_mut(RECORD)) {
        let half = |at: usize| f16_to_f32(u16::from_le_bytes([from[at], from[at + 1]]));
        to[..32].copy_from_slice(&from[q_at..]);
        let sum: i32 = from[q_at..].iter().map(|&q| i32::from(q as i8)).sum();
        to[32..36].copy_from_slice(&half(0).to_le_bytes());
        to[36..40].copy_from_slice(&(-B::BIAS * sum).to_le_bytes());
        let offset = if q_at == 4 { half(2) } else { 0.0 };
        to[40..44].copy_from_slice(&offset.to_le_bytes());
    }
}

/// The unsigned codes of a block: vector k holds elements 4k .. 4k + 4 of every row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn unpack<B: Block32>(block: *const u8) -> [__m512i; 8] {
    let mut codes = [_mm512_setzero_si512(); 8];
    for g in 0..B::LINES {
        // SAFETY: a packed block has `LINES` lines.
        let line = unsafe { _mm512_loadu_si512(block.add(B::LINES_START + 64 * g).cast()) };
        if B::LINES == 8 {
            codes[g] = line;
        } else {
            let low = _mm512_set1_epi8(15);
            codes[g] = _mm512_and_si512(line, low);
            codes[g + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(line), low);
        }
    }
    if let Some(table) = B::TABLE {
        // SAFETY: a table of 16 bytes.
        let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
        for c in &mut codes {
            *c = _mm512_shuffle_epi8(table, *c);
        }
    }
    if B::FIFTH_AT.is_some() {
        for (g, c) in codes.iter_mut().enumerate() {
            // SAFETY: a packed block with fifth bits has eight masks.
            let mask = unsafe {
                block
                    .add(B::MASKS_START + 8 * g)
                    .cast::<u64>()
                    .read_unaligned()
            };
            *c = _mm512_mask_add_epi8(*c, mask, *c, _mm512_set1_epi8(16));
        }
    }
    codes
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn halves(p: *const u8) -> __m512 {
    // SAFETY: the caller has 16 f16 there.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(p.cast()) })
}

/// The scales of 16 rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn scales<B: Block32>(block: *const u8) -> __m512 {
    if B::SCALE_BYTES == 2 {
        // SAFETY: 16 f16 scales.
        return unsafe { halves(block) };
    }
    // Half of 2^(e - 127) as bits; the two smallest are denormal.
    // SAFETY: 16 exponents.
    let e = _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(block.cast()) });
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
    let denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
    let small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, denormal))
}

fn multiply<B: Block32>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    tokens: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let p = const { &layout::<B>("32-blocks x16", "") };
    check(p, group, acts, n, tokens, out);
    // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions;
    // `check` has compared all lengths.
    unsafe {
        if tokens == 1 {
            one::<B>(group, acts, ahead, out);
        } else {
            many::<B>(group, acts, acts.len() / tokens.max(1), out);
        }
    }
}

/// The block step of one token: its sums plus the block's term.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn step<B: Block32>(
    sum: __m512,
    codes: &[__m512i; 8],
    dw: __m512,
    mw: __m512,
    record: *const u8,
) -> __m512 {
    // SAFETY: a record has 48 bytes.
    let (start, dx, sx) = unsafe {
        let q = |at: usize| record.add(at).cast::<i32>().read_unaligned();
        let f = |at: usize| _mm512_set1_ps(record.add(at).cast::<f32>().read_unaligned());
        (_mm512_set1_epi32(q(36)), f(32), f(40))
    };
    let mut isum = start;
    for (g, c) in codes.iter().enumerate() {
        // SAFETY: eight dwords of activations.
        let q = unsafe { record.add(4 * g).cast::<i32>().read_unaligned() };
        isum = _mm512_dpbusd_epi32(isum, *c, _mm512_set1_epi32(q));
    }
    let isum = _mm512_cvtepi32_ps(isum);
    let term = match B::STEP {
        PackedStep::SumFirst => _mm512_mul_ps(_mm512_mul_ps(isum, dw), dx),
        PackedStep::ScaleFirst => _mm512_mul_ps(_mm512_mul_ps(dw, dx), isum),
        PackedStep::PlusOffset => _mm512_add_ps(
            _mm512_mul_ps(_mm512_mul_ps(dw, dx), isum),
            _mm512_mul_ps(mw, sx),
        ),
    };
    _mm512_add_ps(sum, term)
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn offsets<B: Block32>(block: *const u8) -> __m512 {
    if B::OFFSETS > 0 {
        // SAFETY: 16 f16 offsets behind the scales.
        unsafe { halves(block.add(B::SCALE_BYTES * ROWS)) }
    } else {
        _mm512_setzero_ps()
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn one<B: Block32>(group: &[u8], act: &[u8], ahead: usize, out: &mut [f32]) {
    let mut sum = _mm512_setzero_ps();
    for (block, record) in group.chunks_exact(B::PACKED).zip(act.chunks_exact(RECORD)) {
        let block = block.as_ptr();
        prefetch(block, B::PACKED, ahead);
        // SAFETY: a whole block and a whole record.
        unsafe {
            let codes = unpack::<B>(block);
            let (dw, mw) = (scales::<B>(block), offsets::<B>(block));
            sum = step::<B>(sum, &codes, dw, mw, record.as_ptr());
        }
    }
    // SAFETY: 16 floats.
    unsafe { _mm512_storeu_ps(out[..ROWS].as_mut_ptr(), sum) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn many<B: Block32>(group: &[u8], acts: &[u8], act_bytes: usize, out: &mut [f32]) {
    out.fill(0.0);
    for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
        let block = block.as_ptr();
        // SAFETY: a whole block.
        let (codes, dw, mw) =
            unsafe { (unpack::<B>(block), scales::<B>(block), offsets::<B>(block)) };
        for (act, out) in acts.chunks_exact(act_bytes).zip(out.chunks_exact_mut(ROWS)) {
            let record = &act[RECORD * b..][..RECORD];
            // SAFETY: 16 floats; a whole record.
            unsafe {
                let sum = _mm512_loadu_ps(out.as_ptr());
                let sum = step::<B>(sum, &codes, dw, mw, record.as_ptr());
                _mm512_storeu_ps(out.as_mut_ptr(), sum);
            }
        }
    }
}
